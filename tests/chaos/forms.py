"""How much of everything: each drill in a short form, a medium one and a long one."""

from __future__ import annotations

import os
from typing import Literal, TypeVar, get_args

Form = Literal["short", "medium", "long"]
N = TypeVar("N", int, float)


def _form() -> Form:
    asked = os.environ.get("HEADRACE_DRILL", "short")
    for known in get_args(Form):
        if asked == known:
            return known
    raise SystemExit(f"HEADRACE_DRILL is {asked!r}; it must be one of {', '.join(get_args(Form))}")


FORM: Form = _form()


def by_length(short: int, long: int) -> int:
    """The number for drills that have no medium form: these run in the short one then."""
    return sized(short=short, medium=short, long=long)


def sized(*, short: N, medium: N, long: N) -> N:
    """The number for the form that runs: short with every test, long with ``make drill``, medium to rehearse it."""
    return {"short": short, "medium": medium, "long": long}[FORM]
