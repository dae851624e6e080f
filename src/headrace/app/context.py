"""What a handler can learn about the task it runs, and say about it."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from typing import Any

import structlog

from headrace.model.payload import encode

_current: contextvars.ContextVar[TaskContext | None] = contextvars.ContextVar("headrace_context", default=None)


class TaskContext:
    """One attempt at one task. Ask for it with a first parameter ``ctx: TaskContext``, or `current_context()`.

    Safe to use from the thread a sync handler runs in.
    """

    def __init__(
        self,
        *,
        task_id: str,
        type: str,
        queue: str,
        tenant: str,
        attempt: int,
        timeout_s: float,
        level: str,
        traceparent: str,
        report_progress: Callable[[str], None],
    ) -> None:
        self.task_id = task_id
        self.type = type
        self.queue = queue
        self.tenant = tenant
        self.attempt = attempt
        """1 for the first attempt."""
        self.timeout_s = timeout_s
        self.level = level
        self.traceparent = traceparent
        self._deadline_monotonic_s = time.monotonic() + timeout_s
        self._cancelled = False
        self.report_progress = report_progress
        """Called by the worker with JSON text; handlers call `progress`."""

    @property
    def logger(self) -> structlog.stdlib.BoundLogger:
        """A logger that carries the task's id, type, queue and trace."""
        logger: structlog.stdlib.BoundLogger = structlog.get_logger("headrace.task").bind(
            task_id=self.task_id,
            task_type=self.type,
            queue=self.queue,
            attempt=self.attempt,
            traceparent=self.traceparent,
        )
        return logger

    @property
    def time_left_s(self) -> float:
        """Until this attempt's deadline; negative when it has passed."""
        return self._deadline_monotonic_s - time.monotonic()

    @property
    def deadline_s(self) -> float:
        """When this attempt times out, as Unix time by this machine's clock."""
        return time.time() + self.time_left_s

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for this task to stop, or its lease is lost. Long sync handlers should look."""
        return self._cancelled

    def mark_cancelled(self) -> None:
        """Called by the worker."""
        self._cancelled = True

    def progress(self, value: Any) -> None:
        """Publish how far the work is; any JSON value. Travels with the next heartbeat, the newest wins."""
        self.report_progress(encode("progress", value))


def current_context() -> TaskContext:
    """The context of the running handler. Raises LookupError outside of one."""
    context = _current.get()
    if context is None:
        raise LookupError("current_context() was called outside of a task handler")
    return context


def enter(context: TaskContext) -> contextvars.Token[TaskContext | None]:
    """Make ``context`` the current one."""
    return _current.set(context)


def leave(token: contextvars.Token[TaskContext | None]) -> None:
    """Undo `enter`."""
    _current.reset(token)
