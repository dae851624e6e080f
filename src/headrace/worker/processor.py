"""One queue's loop: settle what is done and claim what there is room for, in one round trip.

There are two such loops ("lanes") side by side, sharing everything but the numbers of their claims. A lane
goes to Redis when it has something to settle, or has room and reason to believe that there is work.
Otherwise it waits for one of: a handler that ends, a wake-up token, the moment a task is due or a lease ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from headrace.model.config import QueueConfig
from headrace.model.errors import HeadraceError
from headrace.model.outcomes import Outcome, Settlement
from headrace.queue.cancelling import cancel_and_wait
from headrace.queue.queue import Queue
from headrace.queue.waker import BLOCK_S, Waker
from headrace.queue.wire import ClaimReply

from .execution import Executor
from .health import Health
from .running import RunningTask, RunningTasks
from .settler import Settler
from .slots import Slots
from .timekeeper import Timekeeper

LANES = 2
"""Round trips under way at once: while Redis works on one batch, the handlers of the other run."""
_LONGEST_BACKOFF_S = 3.0

_log = structlog.get_logger(__name__)


class _Lane:
    """One of the round trips that may be under way at the same time."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.number = 1
        self.unanswered = False
        """A claim's answer was lost. It may have leased tasks, so the same number must be sent again."""
        self.failures = 0


class Processor:
    """The claim loop of one queue."""

    def __init__(
        self,
        queue: Queue,
        configs: dict[str, QueueConfig],
        worker: str,
        *,
        waker: Waker,
        slots: Slots,
        running: RunningTasks,
        timekeeper: Timekeeper,
        executor: Executor,
        health: Health,
        register: Callable[[Queue], Awaitable[None]],
    ) -> None:
        self.queue = queue
        self._configs = configs
        self._worker = worker
        self._waker = waker
        self._slots = slots
        self._running = running
        self._timekeeper = timekeeper
        self._executor = executor
        self._health = health
        self._register = register
        self._nudge = asyncio.Event()
        self.settler = Settler(queue.name, running, self._nudge.set)
        slots.when_freed(self._nudge.set)

        self._accepting = True
        self._stopped = False
        self._dry = False
        """The last claim got less than it asked for: wait to be woken instead of asking again."""
        self._deep = False
        """The last claim got all it asked for: there is probably more."""
        # A lane asks for its share of the slots only, so that there is something left for the other to ask for.
        self._share = -(-slots.capacity // LANES)
        self._lanes = [_Lane(index) for index in range(LANES)]
        self._capsets: list[str] = [""]
        self._next_repair_in_s: float | None = None
        self._sleeper: asyncio.Task[None] | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until `finish`, and then until everything is settled."""
        try:
            async with asyncio.TaskGroup() as lanes:
                for lane in self._lanes:
                    lanes.create_task(self._run_lane(lane))
        finally:
            if self._sleeper is not None:
                await cancel_and_wait(self._sleeper)

    async def _run_lane(self, lane: _Lane) -> None:
        while not self._stopped or self.settler.has_some or lane.unanswered:
            self._health.moved(self.queue.name)
            if self._has_business(lane):
                await self._cycle(lane)
            else:
                await self._wait()

    def stop_claiming(self) -> None:
        """Take on nothing new."""
        self._accepting = False
        self._nudge.set()

    def finish(self) -> None:
        """End once everything is settled. Call it when no handler runs any more."""
        self._accepting = False
        self._stopped = True
        self._nudge.set()

    def _has_business(self, lane: _Lane) -> bool:
        if self.settler.has_some or lane.unanswered:
            return True
        if self._may_claim(lane) and not self._dry:
            return self._slots.has_room_for(self.queue.name)
        if self._dry or not self._accepting:
            self._slots.leave_line(self.queue.name)
        return False

    def _may_claim(self, lane: _Lane) -> bool:
        # The second lane joins in when the first found more than it could take: one task wakes one claim.
        return self._accepting and (lane.index == 0 or self._deep)

    async def _cycle(self, lane: _Lane) -> None:
        settlements = self.settler.take()
        want = self._slots.take(self.queue.name, self._share) if self._may_claim(lane) else 0
        try:
            reply = await self._exchange(lane, settlements, want)
            if reply is not None and reply.status == "unregistered":
                await self._register(self.queue)
        except HeadraceError as error:
            self._slots.give_back(want)
            await self._back_off(lane, error)
            return
        lane.failures = 0
        if reply is not None:
            self._take_on(reply, want)

    async def _exchange(self, lane: _Lane, settlements: list[Settlement], want: int) -> ClaimReply | None:
        """One round trip. When it fails, the settlements are kept and the claim's number is used again."""
        claiming = want > 0 or lane.unanswered
        limit = self._configs[self.queue.name].repair_limit
        lane.unanswered = claiming
        try:
            if not claiming:
                self.settler.answered(settlements, await self.queue.settle(settlements))
                return None
            if settlements:
                statuses, reply = await self.queue.settle_and_claim(
                    settlements, self._worker, want, number=lane.number, lane=lane.index, repair_limit=limit
                )
                self.settler.answered(settlements, statuses)
            else:
                reply = await self.queue.claim(
                    self._worker, want, number=lane.number, lane=lane.index, repair_limit=limit
                )
        except HeadraceError:
            self.settler.put_back(settlements)
            raise
        lane.unanswered = False
        lane.number += 1
        return reply

    def _take_on(self, reply: ClaimReply, want: int) -> None:
        started = reply.tasks if self._accepting else []
        if not self._accepting:
            # The drain began while this claim was under way: others can begin these at once.
            for late in reply.tasks:
                self.settler.add(Settlement(late.task_id, late.token, Outcome.HANDED_BACK))
        for claimed in started:
            task = RunningTask(self.queue.name, claimed)
            self._running.add(task)
            task.handler = asyncio.create_task(self._execute(task))
            self._handlers.add(task.handler)
            task.handler.add_done_callback(self._handlers.discard)
            self._timekeeper.watch(task)
        parked = reply.status == "draining"
        self._health.set_parked(self.queue.name, parked)
        # A parked worker listens for its own call only, so that it takes no token from the others.
        self._capsets = [] if parked else reply.capsets
        self._next_repair_in_s = None if reply.status in ("draining", "paused") else reply.next_repair_in_s
        self._dry = reply.status != "unregistered" and len(reply.tasks) < want
        self._deep = 0 < want <= len(reply.tasks)
        self._slots.give_back(want - len(started))

    async def _execute(self, task: RunningTask) -> None:
        settlement = await self._executor.run(task, self._configs[self.queue.name])
        if settlement is None:
            self._running.remove(self.queue.name, task.claimed.task_id, task.claimed.token)
        else:
            self.settler.add(settlement)
        self._slots.give_back(1)

    async def _wait(self) -> None:
        self._nudge.clear()
        if self._dry and self._accepting and self._slots.free > 0 and self._sleeper is None:
            self._sleeper = asyncio.create_task(self._sleep_in_redis())
        patience_s = BLOCK_S
        if self._dry and self._next_repair_in_s is not None:
            patience_s = min(patience_s, self._next_repair_in_s)
        try:
            async with asyncio.timeout(patience_s):
                await self._nudge.wait()
        except TimeoutError:
            if self._next_repair_in_s is not None and patience_s < BLOCK_S:
                self._next_repair_in_s = None
                self._dry = False

    async def _sleep_in_redis(self) -> None:
        token = await self._waker.wait(self._capsets)
        self._sleeper = None
        if token is not None and (not self._accepting or self._slots.free <= 0):
            await self._waker.pass_on(token)
        else:
            self._dry = False
        self._nudge.set()

    async def _back_off(self, lane: _Lane, error: HeadraceError) -> None:
        lane.failures = min(lane.failures + 1, 10)  # past the longest pause anyway; an outage may last for days
        self._slots.leave_line(self.queue.name)  # the other queues need not wait for this one's trouble
        pause_s = random.uniform(0, min(_LONGEST_BACKOFF_S, 0.1 * 2**lane.failures))
        _log.warning("queue unavailable", queue=self.queue.name, error=str(error), retry_in_s=round(pause_s, 3))
        await asyncio.sleep(pause_s)
