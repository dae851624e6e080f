"""What a handler can say about its task, and what becomes of it.

A handler returns a value, raises one of the exceptions here, or raises anything else (which is retried
unless the task's ``retry_on`` says otherwise). The worker turns that into one `Settlement`.
"""

from __future__ import annotations

import enum
import math

import msgspec

from .errors import InvalidInput


class Retry(Exception):
    """Raise it to try again later, in ``after_s`` seconds or after the queue's backoff. Spends an attempt."""

    def __init__(self, reason: str = "", *, after_s: float | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after_s = None if after_s is None else _seconds("after_s", after_s)


class Fail(Exception):
    """Raise it when no retry can help: the task becomes ``failed``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Snooze(Exception):
    """Raise it when the time is not right: the task is scheduled again and no attempt is spent."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"snoozed for {after_s:g} s")
        self.after_s = _seconds("after_s", after_s)


def _seconds(field: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InvalidInput(field, f"must be a number of seconds from 0 up, not {value!r}")
    return float(value)


class Outcome(enum.StrEnum):
    """How a lease ends when its holder says so."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    SNOOZED = "snoozed"
    HANDED_BACK = "handed_back"
    CANCELLED = "cancelled"


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it is stored with a task."""

    type: str
    message: str
    traceback: str = ""


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """One lease and how it ended. ``body`` is the result or the `Problem`, as JSON.

    Written straight into the request of a settle: the order counts.
    """

    task_id: str
    token: int
    outcome: Outcome
    body: str = ""
    after_s: float | None = None


class SettleStatus(enum.StrEnum):
    """What Redis said to a settlement."""

    SETTLED = "settled"
    DUPLICATE = "duplicate"
    """It had been applied before and only its answer was lost."""
    LOST = "lost"
    """The lease had been taken back; nothing was changed."""
    GONE = "gone"
    """The task does not exist any more."""
