"""The tasks of one queue between their claim and their settlement: waiting for a slot, running, ended.

More may be claimed than can run (`headrace.worker.ahead`). What then does not get to run soon goes back to the queue,
where another worker may have room for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headrace.app.tasks import RunIn
from headrace.model.outcomes import Outcome, Settlement
from headrace.model.task import ClaimedTask

from .ahead import Ahead
from .metrics import WorkerMetrics
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
        prepare: Callable[[RunningTask], None],
        run: Callable[[RunningTask], Coroutine[Any, Any, Settlement | None]],
        *,
        slots: Slots,
        running: RunningTasks,
        timekeeper: Timekeeper,
        settler: Settler,
        ahead: Ahead,
        metrics: WorkerMetrics,
    ) -> None:
        self._queue = queue
        self._prepare = prepare
        self._run = run
        self._slots = slots
        self._running = running
        self._timekeeper = timekeeper
        self._settler = settler
        self._ahead = ahead
        self._metrics = metrics
        self._waiting: deque[RunningTask] = deque()
        self._under_way: dict[asyncio.Task[None], RunningTask] = {}
        self._places: Counter[RunIn] = Counter()
        """How many of them run where."""
        self._lined_up: deque[RunningTask] = deque()
        self._review: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many tasks are at hand that have not begun."""
        return len(self._waiting) + max(0, len(self._under_way) - self._slots.capacity)

    @property
    def are_busy(self) -> bool:
        """Whether as many run as can."""
        return len(self._under_way) >= self._slots.capacity

    def take_on(self, claimed: Sequence[ClaimedTask], at_s: float) -> None:
        """Run these, as soon as there is room. Their slots have been taken; Redis' clock showed ``at_s``."""
        self._waiting.extend(self._held(claimed, at_s))
        self._start_waiting()

    def give_back(self, claimed: Sequence[ClaimedTask], at_s: float) -> None:
        """Others can begin these at once. Their slots have been taken; Redis' clock showed ``at_s``."""
        for task in self._held(claimed, at_s):
            self._give_back(task)

    def give_back_waiting(self) -> None:
        """The same for what has not begun here."""
        while self._waiting:
            self._give_back(self._waiting.popleft())
        while self._lined_up:
            self._take_out_of_line(self._lined_up.popleft())

    def close(self) -> None:
        """Look after nothing any more."""
        if self._review is not None:
            self._review.cancel()

    def _held(self, claimed: Sequence[ClaimedTask], at_s: float) -> list[RunningTask]:
        """From now on their leases are renewed, until they are settled."""
        self._metrics.claimed(self._queue, claimed)
        tasks = [RunningTask(self._queue, task, at_s - task.created_at_s) for task in claimed]
        for task in tasks:
            self._prepare(task)
        self._running.add(tasks)
        return tasks

    def _start_waiting(self) -> None:
        while self._waiting and self._has_room_for(self._waiting[0]):
            task = self._waiting.popleft()
            if len(self._under_way) >= self._slots.capacity:
                self._lined_up.append(task)
            task.handler = asyncio.create_task(self._handle(task))
            self._under_way[task.handler] = task
            self._places[task.place] += 1
            task.handler.add_done_callback(self._ended)
            self._timekeeper.watch(task)
        if self._review is None and (self._waiting or self._lined_up):
            self._review = asyncio.get_running_loop().call_later(_PATIENCE_S, self._review_waiting)

    def _has_room_for(self, task: RunningTask) -> bool:
        """Whether a slot is free, or the task can stand in line for the thread or process of one that runs.

        Whoever runs a handler then goes on with the next one by itself, without waiting for the event loop. As long
        as all handlers run in one place, that place sees to it that no more run at once than may.
        """
        under_way = len(self._under_way)
        if under_way < self._slots.capacity:
            return True
        return task.place != "loop" and self._places[task.place] == under_way < 2 * self._slots.capacity

    async def _handle(self, task: RunningTask) -> None:
        settlement = await self._run(task)
        task.ended_monotonic_s = time.monotonic()
        if task.spans is not None:
            task.spans.ran(settlement)
        if task.begun_monotonic_s is not None:
            took_s = task.ended_monotonic_s - task.begun_monotonic_s
            self._ahead.handled(took_s)
            self._settler.ran(task.claimed.level, took_s)
        if settlement is None:
            self._metrics.left(task)
            self._forget(task)
        else:
            self._settler.add(task, settlement)

    def _ended(self, handler: asyncio.Task[None]) -> None:
        self._places[self._under_way.pop(handler).place] -= 1
        while self._lined_up and self._lined_up[0].begun_monotonic_s is not None:
            self._lined_up.popleft()
        self._start_waiting()
        self._slots.give_back(1)

    def _review_waiting(self) -> None:
        """What was claimed ahead in vain goes back."""
        self._review = None
        overdue_s = time.monotonic() - _PATIENCE_S
        while self._lined_up and self._lined_up[0].claimed_monotonic_s <= overdue_s:
            if self._take_out_of_line(self._lined_up.popleft()):
                self._ahead.got_stuck()
        while self._waiting and self._waiting[0].claimed_monotonic_s <= overdue_s:
            self._give_back(self._waiting.popleft())
            self._ahead.got_stuck()
        self._start_waiting()

    def _take_out_of_line(self, task: RunningTask) -> bool:
        """Hand back a task that stands in line, unless its handler has begun."""
        return task.withdraw() and task.stop(StopReason.SHUTDOWN)

    def _give_back(self, task: RunningTask) -> None:
        claimed = task.claimed
        if task.stop_reason is StopReason.LEASE_LOST:
            self._forget(task)
        else:
            outcome = Outcome.CANCELLED if task.stop_reason is StopReason.CANCELLED else Outcome.HANDED_BACK
            self._settler.add(task, Settlement(claimed.task_id, claimed.token, outcome))
        self._slots.give_back(1)

    def _forget(self, task: RunningTask) -> None:
        self._running.remove(self._queue, [(task.claimed.task_id, task.claimed.token)])
