"""One queue's loop: settle what is done and claim what there is room for, in one round trip.

There are two such loops ("lanes") side by side, sharing everything but the numbers of their claims. A lane
goes to Redis when it has something to settle, or has room and reason to believe that there is work. When there
is none, the first lane sleeps in Redis, and the other one waits for handlers that end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

import structlog

from headrace.model.config import QueueConfig
from headrace.model.errors import HeadraceError
from headrace.queue.cancelling import cancel_and_wait
from headrace.queue.queue import MAX_TASKS_PER_CALL, ClaimOptions, Queue
from headrace.queue.waker import BLOCK_S, Waker
from headrace.queue.wire import ClaimReply

from .ahead import Ahead
from .execution import Executor
from .handlers import Handlers
from .health import Health
from .metrics import WorkerMetrics
from .running import Ended, RunningTasks
from .settler import Settler
from .slots import Slots
from .timekeeper import Timekeeper

LANES = 2
"""Round trips under way at once: while Redis works on one batch, the handlers of the other run."""
_LONGEST_LINGER_S = 0.02
"""A settlement is held back for no longer than this."""
_LONGEST_BACKOFF_S = 3.0

_log = structlog.get_logger(__name__)


class _Lane:
    """One of the round trips that may be under way at the same time."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.number = 1
        self.asked_for = 0
        """How many tasks the claim that is under way may bring."""
        self.unanswered = False
        """A claim's answer was lost. It may have leased tasks, so the same number must be sent again."""
        self.sent_at_s = 0.0
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
        metrics: WorkerMetrics,
        register: Callable[[Queue], Awaitable[None]],
        is_only_queue: bool,
    ) -> None:
        self.queue = queue
        self._configs = configs
        self._worker = worker
        self._waker = waker
        self._slots = slots
        self._health = health
        self._register = register
        self._nudge = asyncio.Event()
        self.settler = Settler(queue.name, running, metrics, self._handler_ended)
        slots.when_freed(self._handler_ended)
        self._linger: asyncio.TimerHandle | None = None
        self._lingered_enough = False

        self._accepting = True
        self._stopped = False
        self._dry = False
        """The last claim got less than it asked for: wait to be woken instead of asking again."""
        self._deep = False
        """The last claim got all it asked for: there is probably more."""
        self._lanes = [_Lane(index) for index in range(LANES)]
        self._capsets: list[str] = [""]
        self._next_repair_in_s: float | None = None
        self._asleep = False
        self._bells: set[asyncio.Task[None]] = set()
        # Slots that are set aside for what may come are missing where several queues share them. So only the worker
        # of a single queue sends a claim along when it goes to sleep, and claims ahead.
        self._is_only_queue = is_only_queue
        self._ahead = Ahead(slots.capacity)
        self._handlers = Handlers(
            queue.name,
            executor.prepare,
            lambda task: executor.run(task, configs[queue.name]),
            slots=slots,
            running=running,
            timekeeper=timekeeper,
            settler=self.settler,
            ahead=self._ahead,
            metrics=metrics,
        )

    async def run(self) -> None:
        """Work until `finish`, and then until everything is settled."""
        try:
            async with asyncio.TaskGroup() as lanes:
                for lane in self._lanes:
                    lanes.create_task(self._run_lane(lane))
        finally:
            if self._linger is not None:
                self._linger.cancel()
            self._handlers.close()
            await cancel_and_wait(*self._bells)

    async def _run_lane(self, lane: _Lane) -> None:
        while not self._stopped or self.settler.has_some or lane.unanswered:
            self._health.moved(self.queue.name)
            if self._has_business(lane):
                await self._cycle(lane)
            elif lane.index == 0 and self._dry and self._could_take_on():
                await self._sleep(lane)
            else:
                await self._wait()

    def stop_claiming(self) -> None:
        """Take on nothing new, and give back what has not begun."""
        self._accepting = False
        self._handlers.give_back_waiting()
        self._ring()
        self._nudge.set()

    def finish(self) -> None:
        """End once everything is settled. Call it when no handler runs any more."""
        self._accepting = False
        self._stopped = True
        self._ring()
        self._nudge.set()

    def _has_business(self, lane: _Lane) -> bool:
        if lane.unanswered:
            return True
        if self._may_linger():
            return False
        if self.settler.has_some:
            return True
        if self._may_claim(lane) and not self._dry:
            return self._slots.has_room_for(self.queue.name)
        if self._dry or not self._accepting:
            self._slots.leave_line(self.queue.name)
        return False

    def _could_take_on(self) -> bool:
        return self._accepting and self._slots.free > 0

    def _may_claim(self, lane: _Lane) -> bool:
        # The second lane joins in when the first found more than it could take: one task wakes one claim.
        return self._accepting and (lane.index == 0 or self._deep)

    def _may_linger(self) -> bool:
        """Whether a round trip can wait: all slots are busy, and there is enough to go on with.

        Round trips cost the same for one task as for ten, and handlers are held up by each.
        """
        if self._lingered_enough or not self._handlers.are_busy:
            return False
        coming = sum(lane.asked_for for lane in self._lanes)
        return self._ahead.is_enough(self._handlers.waiting + coming)

    def _handler_ended(self) -> None:
        """There is something to settle, or room for another task."""
        if not self._may_linger():
            self._nudge.set()
        elif self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(_LONGEST_LINGER_S, self._linger_no_more)

    def _linger_no_more(self) -> None:
        self._lingered_enough = True
        self._nudge.set()

    async def _cycle(self, lane: _Lane) -> None:
        self._lingered_enough = False
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        ended = self.settler.take()
        want = self._take_slots() if self._may_claim(lane) else 0
        lane.asked_for = want
        try:
            reply = await self._exchange(lane, ended, want)
            if reply is not None and reply.status == "unregistered":
                await self._register(self.queue)
        except HeadraceError as error:
            lane.asked_for = 0
            self._slots.give_back(want)
            await self._back_off(lane, error)
            return
        lane.failures = lane.asked_for = 0
        if reply is not None:
            self._take_on(reply, want, after_s=time.monotonic() - lane.sent_at_s)

    def _take_slots(self) -> int:
        if self._is_only_queue:
            self._slots.hold_ahead(self._ahead.count())
        # A lane asks for its share only, so that there is something left for the other to ask for.
        share = -(-self._slots.total // LANES)
        return self._slots.take(self.queue.name, min(share, MAX_TASKS_PER_CALL))

    async def _exchange(self, lane: _Lane, ended: list[Ended], want: int) -> ClaimReply | None:
        """One round trip. When it fails, the settlements are kept and the claim's number is used again."""
        claiming = want > 0 or lane.unanswered
        lane.unanswered = claiming
        lane.sent_at_s = time.monotonic()
        settlements = [settlement for _, settlement in ended]
        try:
            if not claiming:
                statuses = await self.queue.settle(settlements, self.settler.take_run_times())
                self.settler.answered(ended, statuses)
                return None
            if settlements:
                statuses, reply = await self.queue.settle_and_claim(
                    settlements, self._worker, want, self.settler.take_run_times(), **self._claim_options(lane)
                )
                self.settler.answered(ended, statuses)
            else:
                reply = await self.queue.claim(self._worker, want, **self._claim_options(lane))
        except HeadraceError:
            self.settler.put_back(ended)
            raise
        self._ahead.exchanged(time.monotonic() - lane.sent_at_s)
        lane.unanswered = False
        lane.number += 1
        return reply

    def _claim_options(self, lane: _Lane) -> ClaimOptions:
        config = self._configs[self.queue.name]
        return {
            "number": lane.number,
            "lane": lane.index,
            "repair_limit": config.repair_limit,
            "selection": config.selection,
        }

    async def _sleep(self, lane: _Lane) -> None:
        """Wait in Redis until there is work, with the claim for it already there."""
        # Handlers that were just started begin now, not after the next claim has been packed and sent.
        await asyncio.sleep(0)
        if not self._could_take_on():
            return
        self._slots.leave_line(self.queue.name)
        want = self._take_slots() if self._is_only_queue else 0
        claim = None
        if want > 0:
            claim = self.queue.claim_call(self._worker, want, **self._claim_options(lane))
            lane.unanswered = True
        self._asleep = True
        alarm = None
        if self._next_repair_in_s is not None and self._next_repair_in_s < BLOCK_S:
            alarm = asyncio.get_running_loop().call_later(self._next_repair_in_s, self._ring)
        woken = await self._waker.wait(self._capsets, claim)
        self._asleep = False
        if alarm is not None:
            alarm.cancel()
        self._dry = False
        if woken.claimed is None:
            self._slots.give_back(want)
            if woken.token_from is not None and not self._could_take_on():
                await self._waker.pass_on(woken.token_from)
            return
        try:
            reply = self.queue.claimed(woken.claimed)
        except HeadraceError:
            self._slots.give_back(want)
            return  # the claim that follows meets the same trouble and deals with it
        lane.unanswered = False
        lane.number += 1
        # When it was claimed is not known, but the loop was free to read the answer.
        self._take_on(reply, want, after_s=0.0)

    def _ring(self) -> None:
        """End the sleep in Redis."""
        if self._asleep:
            bell = asyncio.create_task(self._waker.ring())
            self._bells.add(bell)
            bell.add_done_callback(self._bells.discard)

    def _take_on(self, reply: ClaimReply, want: int, *, after_s: float) -> None:
        """Deal with an answer that was read so long after the question."""
        # While a handler blocks the loop, answers lie unread and nobody renews the leases in them. Others may have the
        # tasks by now, so these are not begun; and a drain may have begun while the claim was under way.
        expired = after_s >= self._configs[self.queue.name].lease_s
        # Handlers first: whoever hears of free slots is to begin after them.
        if self._accepting and not expired:
            self._handlers.take_on(reply.tasks, reply.at_s)
        else:
            self._handlers.give_back(reply.tasks, reply.at_s)
        self._slots.give_back(want - len(reply.tasks))
        parked = reply.status == "draining"
        self._health.set_parked(self.queue.name, parked)
        self._dry = reply.status != "unregistered" and len(reply.tasks) < want
        self._deep = 0 < want <= len(reply.tasks)
        if self._dry:
            # A parked worker listens for its own call only, so that it takes no token from the others.
            self._capsets = [] if parked else reply.capsets
            self._next_repair_in_s = None if reply.status in ("draining", "paused") else reply.next_repair_in_s

    async def _wait(self) -> None:
        """Until a handler ends, a slot is free, or something else may have changed."""
        self._nudge.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BLOCK_S):
                await self._nudge.wait()
        # Handlers that end together are replaced together; the new ones begin now, not after the old ones' settlements
        # have been packed and sent. It takes one turn of the loop to start them and one for their first steps.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _back_off(self, lane: _Lane, error: HeadraceError) -> None:
        lane.failures = min(lane.failures + 1, 10)  # past the longest pause anyway; an outage may last for days
        self._slots.leave_line(self.queue.name)  # the other queues need not wait for this one's trouble
        pause_s = random.uniform(0, min(_LONGEST_BACKOFF_S, 0.1 * 2**lane.failures))
        _log.warning("queue unavailable", queue=self.queue.name, error=str(error), retry_in_s=round(pause_s, 3))
        await asyncio.sleep(pause_s)
