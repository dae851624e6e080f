"""Stopping handlers at their deadline.

One timer for all of them, set to the earliest deadline: a timer for each task would cost more than a short
task itself. When it rings, the few tasks that run are looked through.
"""

from __future__ import annotations

import asyncio
import time

from .running import RunningTask, RunningTasks, StopReason


class Timekeeper:
    """Watches the deadlines of the tasks that run."""

    def __init__(self, running: RunningTasks) -> None:
        self._running = running
        self._rings_at_s = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task: RunningTask) -> None:
        """See to it that ``task`` does not run past its deadline."""
        if task.deadline_monotonic_s < self._rings_at_s:
            self._ring_at(task.deadline_monotonic_s)

    def close(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, monotonic_s: float) -> None:
        self.close()
        self._rings_at_s = monotonic_s
        delay_s = max(0.0, monotonic_s - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        now_s = time.monotonic()
        upcoming_s = []
        for task in self._running.unfinished():
            if task.deadline_monotonic_s <= now_s:
                task.stop(StopReason.TIMED_OUT)
            else:
                upcoming_s.append(task.deadline_monotonic_s)
        self._rings_at_s = float("inf")
        if upcoming_s:
            self._ring_at(min(upcoming_s))
