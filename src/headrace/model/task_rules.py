"""Whether a queue would take a task: the checks of ``enqueue.lua`` in Python, and the errors of both."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .config import MAX_DURATION_S, QueueConfig
from .errors import InvalidInput, UnknownLevel
from .payload import check_size
from .task import NewTask

MAX_CAPABILITY_SETS = 64
"""A claim looks at every set that its worker covers, so their number is bounded."""


def check_new_tasks(config: QueueConfig, tasks: Sequence[NewTask]) -> None:
    """Raise the error that enqueueing ``tasks`` would meet."""
    levels = set(config.level_names())
    for index, task in enumerate(tasks):
        if task.level and task.level not in levels:
            raise unknown_level(field_of("priority", index, len(tasks)), config, task.level)
        check_size(field_of("payload", index, len(tasks)), task.message, config.max_payload_bytes)
        if task.delay_s > config.max_delay_s:
            raise delay_too_long(field_of("delay_s", index, len(tasks)), config.max_delay_s)


def field_of(field: str, index: int, total: int) -> str:
    """How an error names a field: with the task's position when there are several."""
    return field if total == 1 else f"tasks[{index}].{field}"


def unknown_level(field: str, config: QueueConfig, level: str) -> UnknownLevel:
    """The error for a level that the queue does not have."""
    return UnknownLevel(
        field, f"queue {config.name!r} has no level {level!r}; it has {', '.join(config.level_names())}"
    )


def delay_too_long(field: str, max_delay_s: float) -> InvalidInput:
    """The error for a delay past the queue's limit."""
    return InvalidInput(field, f"is more than the queue's max_delay_s of {max_delay_s:g} seconds")


def too_many_capability_sets(index: int, total: int) -> InvalidInput:
    """The error for a task that brings one set of capabilities too many."""
    return InvalidInput(
        field_of("required_capabilities", index, total),
        f"would be one more than the {MAX_CAPABILITY_SETS} different capability sets a queue can hold",
    )


def check_delay_s(field: str, value: object) -> float:
    """A delay that makes sense at all; the queue's own limit is checked later."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise InvalidInput(field, f"must be a number of seconds, not {value!r}")
    if value < 0:
        raise InvalidInput(field, f"is {value:g}; a delay cannot be negative")
    if value > MAX_DURATION_S:
        raise InvalidInput(field, f"is {value:g}; at most {MAX_DURATION_S:g} seconds (ten years) are allowed")
    return float(value)


def check_timeout_s(field: str, value: object) -> float:
    """A timeout that makes sense."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise InvalidInput(field, f"must be a number of seconds above 0, not {value!r}")
    if value > MAX_DURATION_S:
        raise InvalidInput(field, f"is {value:g}; at most {MAX_DURATION_S:g} seconds (ten years) are allowed")
    return float(value)


def check_max_retries(field: str, value: object) -> int:
    """A number of retries that makes sense."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1000:
        raise InvalidInput(field, f"must be a whole number from 0 to 1000, not {value!r}")
    return value
