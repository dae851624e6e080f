"""The states of a task and of a worker. ``docs/state_machine.md`` draws them."""

from __future__ import annotations

import enum


class TaskState(enum.StrEnum):
    """Where a task is in its life, and who moves it on."""

    SCHEDULED = "scheduled"
    """Not due yet (a delay or a snooze). Forwarding makes it ``queued``."""
    QUEUED = "queued"
    """Ready. A worker's claim makes it ``executing``."""
    EXECUTING = "executing"
    """Leased to one worker, who settles it; an expired lease is reclaimed by anybody's claim."""
    RETRYING = "retrying"
    """Waiting out its backoff after a failed attempt. Forwarding makes it ``queued``."""
    COMPLETED = "completed"
    """Done. Purged when its retention ends."""
    FAILED = "failed"
    """The handler called the error permanent. Purged when its retention ends."""
    CANCELLED = "cancelled"
    """Stopped on request. Purged when its retention ends."""
    DEAD_LETTER = "dead_letter"
    """Out of retries, or poison. A replay makes it ``queued`` again."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing moves the task on by itself any more."""
        return self in _TERMINAL


_TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD_LETTER})


class WorkerState(enum.StrEnum):
    """Whether a worker may claim."""

    ACTIVE = "active"
    DRAINING = "draining"
    """Claims nothing more and finishes what it holds."""
    DEAD = "dead"
    """Has not sent a heartbeat for too long."""


class WorkerActivity(enum.StrEnum):
    """Whether a worker holds any task."""

    IDLE = "idle"
    BUSY = "busy"
