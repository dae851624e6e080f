"""``README.md`` of the chart: its prose, and a table of the values for each part of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from .values import Value, leaves

PLACE = "<!-- values -->"
_NOTE = "<!-- Made by `make generate` from README.template.md and values.yaml; do not edit. -->\n"
_LONGEST_DEFAULT = 60


def readme_text(template: str, values: Sequence[Value]) -> str:
    """The prose with the tables in their place."""
    if template.count(PLACE) != 1:
        raise ValueError(f"README.template.md must have one line {PLACE}")
    return _NOTE + template.replace(PLACE, "\n\n".join(_tables(values)))


def _tables(values: Sequence[Value]) -> Iterable[str]:
    alone = [value for value in values if not value.children]
    yield _table("The whole", alone)
    for group in values:
        if group.children:
            yield _table(f"`{group.key}`", list(leaves(group.children)))


def _table(title: str, values: Sequence[Value]) -> str:
    rows = [f"| `{value.path}` | {_default(value.default)} | {_cell(value.description)} |" for value in values]
    return "\n".join([f"### {title}", "", "| value | default | |", "|---|---|---|", *rows])


def _default(default: Any) -> str:
    text = json.dumps(default, ensure_ascii=False)
    return "see values.yaml" if len(text) > _LONGEST_DEFAULT else f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
