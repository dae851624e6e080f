"""The tasks this worker holds, and how they are stopped."""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from headrace.app.context import TaskContext
from headrace.app.tasks import RunIn
from headrace.model.outcomes import Settlement
from headrace.model.task import ClaimedTask, TaskMessage
from headrace.observability.tracing import AttemptSpans


class StopReason(enum.Enum):
    """Why a running handler is stopped."""

    CANCELLED = enum.auto()
    """Somebody asked for it: the task becomes ``cancelled``."""
    TIMED_OUT = enum.auto()
    """The attempt has run for as long as it may: it is retried."""
    LEASE_LOST = enum.auto()
    """The task is another worker's now: nothing is settled."""
    SHUTDOWN = enum.auto()
    """The worker goes: the task is handed back without spending an attempt."""


class RunningTask:
    """One task between its claim and its settlement."""

    __slots__ = (
        "_fate",
        "age_s",
        "begun_monotonic_s",
        "claimed",
        "claimed_monotonic_s",
        "context",
        "deadline_monotonic_s",
        "ended_monotonic_s",
        "handler",
        "has_started",
        "message",
        "place",
        "progress",
        "queue",
        "spans",
        "stop_reason",
    )

    def __init__(self, queue: str, claimed: ClaimedTask, age_s: float) -> None:
        """``age_s``: how long ago it was enqueued, by Redis' clock."""
        self.queue = queue
        self.claimed = claimed
        self.age_s = age_s
        self.claimed_monotonic_s = time.monotonic()
        self.deadline_monotonic_s = self.claimed_monotonic_s + claimed.timeout_s
        self.message: TaskMessage | None = None
        self.place: RunIn = "loop"
        self.context: TaskContext | None = None
        self.handler: asyncio.Task[None] | None = None
        self.has_started = False
        """The handler's coroutine has taken its first step; the handler itself may still wait for its thread."""
        self.begun_monotonic_s: float | None = None
        """When the handler itself began."""
        self.ended_monotonic_s: float | None = None
        """When it was known how the attempt ended."""
        self.spans: AttemptSpans | None = None
        self._fate = threading.Lock()
        self.stop_reason: StopReason | None = None
        # A box of its own for the last report: through it a handler's context leads to no task and to no handler.
        # Such a circle, one per task, would be left to the garbage collector.
        self.progress: deque[str] = deque(maxlen=1)

    def begin(self) -> bool:
        """Called by whoever is about to run the handler, in whatever thread; False when it is not to run any more."""
        if not self._fate.acquire(blocking=False):
            return False
        self.begun_monotonic_s = time.monotonic()
        return True

    def withdraw(self) -> bool:
        """Keep the handler from beginning; False when it has begun. It is decided once, here or by `begin`."""
        return self._fate.acquire(blocking=False)

    def stop(self, reason: StopReason) -> bool:
        """Ask the handler to end. The first reason counts; False when there is nothing to stop."""
        if self.stop_reason is not None or (self.handler is not None and self.handler.done()):
            return False
        self.withdraw()
        self.stop_reason = reason
        if self.context is not None:
            self.context.mark_cancelled()
        # A coroutine that is cancelled before its first step never runs, not even to settle. One that has
        # not started finds the reason when it does.
        if self.has_started and self.handler is not None:
            self.handler.cancel()
        return True


Ended: TypeAlias = tuple[RunningTask, Settlement]
"""A task, and how it is to be settled."""


class RunningTasks:
    """All leases held. Read by the heartbeat's thread, so every access takes the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[tuple[str, str], RunningTask] = {}

    def add(self, tasks: Iterable[RunningTask]) -> None:
        with self._lock:
            for task in tasks:
                self._by_id[task.queue, task.claimed.task_id] = task

    def remove(self, queue: str, settled: Iterable[tuple[str, int]]) -> None:
        """Forget leases (task id and token) that are over."""
        with self._lock:
            for task_id, token in settled:
                task = self._by_id.get((queue, task_id))
                if task is not None and task.claimed.token == token:
                    del self._by_id[queue, task_id]

    def stop(self, queue: str, task_id: str, token: int | None, reason: StopReason) -> bool:
        """Stop the task if it still runs under this token (None: under any); False when it does not."""
        with self._lock:
            task = self._by_id.get((queue, task_id))
        return task is not None and token in (None, task.claimed.token) and task.stop(reason)

    def leases(self, queue: str) -> list[tuple[str, int]]:
        """Task ids and tokens, for the heartbeat."""
        with self._lock:
            return [(t.claimed.task_id, t.claimed.token) for t in self._by_id.values() if t.queue == queue]

    def take_progress(self, queue: str) -> list[tuple[str, int, str]]:
        """Progress reported since the last call."""
        with self._lock:
            reports = []
            for task in self._by_id.values():
                if task.queue == queue and task.progress:
                    reports.append((task.claimed.task_id, task.claimed.token, task.progress.pop()))
            return reports

    def unfinished(self) -> list[RunningTask]:
        """Tasks whose handler has not ended."""
        with self._lock:
            return [task for task in self._by_id.values() if task.handler is not None and not task.handler.done()]
