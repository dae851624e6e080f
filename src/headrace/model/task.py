"""A task in its three shapes: as it is sent, as a worker receives it, as it can be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .outcomes import Problem
from .states import TaskState


class TaskMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The immutable part, stored as one JSON text. What the handler needs and nothing else."""

    type: str
    args: Sequence[Any] = []
    kwargs: dict[str, Any] = {}
    traceparent: str = ""
    """Empty for a task that begins a trace of its own, see `headrace.model.trace.of_task`."""


class NewTask(msgspec.Struct, frozen=True):
    """A task on its way into a queue. Empty or None means: as the queue or the level says."""

    task_id: str
    message: str
    """The `TaskMessage` as JSON."""
    level: str = ""
    capabilities: str = ""
    """A canonical set, see `headrace.model.names.capability_set`."""
    delay_s: float = 0.0
    max_retries: int | None = None
    timeout_s: float | None = None
    idempotency_key: str = ""


class ClaimedTask(msgspec.Struct, frozen=True, array_like=True):
    """A task that this worker now holds a lease on. Read straight from a claim's answer: the order counts."""

    task_id: str
    message: str
    token: int
    """The fencing token: higher with every claim of the task. Every settle must show it."""
    retries: int
    timeout_s: float
    level: str
    created_at_s: float
    waited_s: float
    """From its place in its line to the claim, by Redis' clock; see `docs/metrics.md` for what a retry's place is."""

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self.retries + 1


class Attempt(msgspec.Struct, frozen=True):
    """One failed attempt in a task's history."""

    number: int
    worker: str
    started_at_s: float
    ended_at_s: float
    reason: str
    problem: Problem


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a task at one instant."""

    task_id: str
    queue: str
    type: str
    state: TaskState
    priority: str
    """The level it was enqueued at; a retry returns here."""
    effective_priority: str
    """The level it waits or ran at, after promotions."""
    capabilities: tuple[str, ...]
    args: list[Any]
    kwargs: dict[str, Any]
    traceparent: str
    retry_count: int
    max_retries: int
    timeout_s: float
    """Of the current or next attempt: retries stretch it."""
    created_at_s: float
    started_at_s: float | None
    finished_at_s: float | None
    worker: str | None
    result: Any
    problem: Problem | None
    reason: str
    """Why it was dead-lettered, if it was."""
    progress: Any
    cancel_requested: bool
    history: tuple[Attempt, ...]
