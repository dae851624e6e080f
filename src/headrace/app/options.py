"""How a task is enqueued: what the decorator says, what ``options(...)`` changes for one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import msgspec

from headrace.model.names import capability_set, check_idempotency_key, check_name
from headrace.model.task_rules import check_delay_s, check_max_retries, check_timeout_s
from headrace.model.trace import check_traceparent


class OptionArguments(TypedDict, total=False):
    """The keyword arguments of ``options(...)``."""

    queue: str
    priority: str
    max_retries: int
    timeout_s: float
    delay_s: float
    idempotency_key: str
    required_capabilities: Iterable[str]
    traceparent: str


class EnqueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Checked when they are made; errors name the option."""

    queue: str
    priority: str = ""
    max_retries: int | None = None
    timeout_s: float | None = None
    delay_s: float = 0.0
    idempotency_key: str = ""
    capabilities: str = ""
    traceparent: str = ""

    def changed(self, changes: OptionArguments) -> EnqueueOptions:
        """These options with some replaced."""
        values = msgspec.structs.asdict(self)
        for name, check in _CHECKS.items():
            if name in changes:
                values[_FIELDS.get(name, name)] = check(name, changes[name])  # type: ignore[literal-required]
        unknown = set(changes) - set(_CHECKS)
        if unknown:
            raise TypeError(f"unknown option {min(unknown)!r}; the options are {', '.join(_CHECKS)}")
        return EnqueueOptions(**values)


_CHECKS = {
    "queue": check_name,
    "priority": check_name,
    "max_retries": check_max_retries,
    "timeout_s": check_timeout_s,
    "delay_s": check_delay_s,
    "idempotency_key": check_idempotency_key,
    "required_capabilities": capability_set,
    "traceparent": check_traceparent,
}
_FIELDS = {"required_capabilities": "capabilities"}
