"""The tasks of one queue between their claim and their settlement: waiting for a slot, running, ended.

More may be claimed than can run (`headrace.worker.ahead`). What then does not get to run soon goes back to the queue,
where another worker may have room for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headrace.model.outcomes import Outcome, Settlement
from headrace.model.task import ClaimedTask

from .ahead import Ahead
from .running import RunningTask, RunningTasks, StopReason
from .settler import Settler
from .slots import Slots
from .timekeeper import Timekeeper

_PATIENCE_S = 0.1
"""A task that was claimed ahead and has not begun by then goes back."""


class Handlers:
    """Starts handlers as slots become free, and passes on how they ended."""

    def __init__(
        self,
        queue: str,
        run: Callable[[RunningTask], Coroutine[Any, Any, Settlement | None]],
        *,
        slots: Slots,
        running: RunningTasks,
        timekeeper: Timekeeper,
        settler: Settler,
        ahead: Ahead,
    ) -> None:
        self._queue = queue
        self._run = run
        self._slots = slots
        self._running = running
        self._timekeeper = timekeeper
        self._settler = settler
        self._ahead = ahead
        self._waiting: deque[RunningTask] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._review: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many tasks are at hand that have not begun."""
        return len(self._waiting)

    @property
    def are_busy(self) -> bool:
        """Whether as many run as can."""
        return len(self._under_way) >= self._slots.capacity

    def take_on(self, claimed: Sequence[ClaimedTask]) -> None:
        """Run these, as soon as there is room. Their slots have been taken."""
        self._waiting.extend(self._held(claimed))
        self._start_waiting()

    def give_back(self, claimed: Sequence[ClaimedTask]) -> None:
        """Others can begin these at once. Their slots have been taken."""
        for task in self._held(claimed):
            self._give_back(task)

    def give_back_waiting(self) -> None:
        """The same for what has not begun here."""
        while self._waiting:
            self._give_back(self._waiting.popleft())

    def close(self) -> None:
        """Look after nothing any more."""
        if self._review is not None:
            self._review.cancel()

    def _held(self, claimed: Sequence[ClaimedTask]) -> list[RunningTask]:
        """From now on their leases are renewed, until they are settled."""
        tasks = [RunningTask(self._queue, task) for task in claimed]
        self._running.add(tasks)
        return tasks

    def _start_waiting(self) -> None:
        while self._waiting and len(self._under_way) < self._slots.capacity:
            task = self._waiting.popleft()
            task.handler = asyncio.create_task(self._handle(task))
            self._under_way.add(task.handler)
            task.handler.add_done_callback(self._ended)
            self._timekeeper.watch(task)
        if self._waiting and self._review is None:
            self._review = asyncio.get_running_loop().call_later(_PATIENCE_S, self._review_waiting)

    async def _handle(self, task: RunningTask) -> None:
        started_s = time.monotonic()
        settlement = await self._run(task)
        self._ahead.handled(time.monotonic() - started_s)
        if settlement is None:
            self._forget(task)
        else:
            self._settler.add(settlement)

    def _ended(self, handler: asyncio.Task[None]) -> None:
        self._under_way.discard(handler)
        self._start_waiting()
        self._slots.give_back(1)

    def _review_waiting(self) -> None:
        """What was claimed ahead in vain goes back."""
        self._review = None
        overdue_s = time.monotonic() - _PATIENCE_S
        while self._waiting and self._waiting[0].claimed_monotonic_s <= overdue_s:
            self._give_back(self._waiting.popleft())
            self._ahead.got_stuck()
        self._start_waiting()

    def _give_back(self, task: RunningTask) -> None:
        claimed = task.claimed
        if task.stop_reason is StopReason.LEASE_LOST:
            self._forget(task)
        else:
            outcome = Outcome.CANCELLED if task.stop_reason is StopReason.CANCELLED else Outcome.HANDED_BACK
            self._settler.add(Settlement(claimed.task_id, claimed.token, outcome))
        self._slots.give_back(1)

    def _forget(self, task: RunningTask) -> None:
        self._running.remove(self._queue, [(task.claimed.task_id, task.claimed.token)])
