"""One queue in care: its pulse every second, and what follows from it.

Who scales workers leaves word how many more tasks may come to wait before it wants to know (`leave_room`). The keeper
hangs a bell in Redis accordingly, and when it rings feels the pulse at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from headrace.model.errors import BackendError, Deposed, HeadraceError, UnknownQueue
from headrace.model.figures import Pulse
from headrace.queue.inspection import Inspector
from headrace.queue.queue import Queue

from ..observation import Flow
from .promotion import promote
from .recovery import recover

PULSE_S = 1.0
_AUDIT_EVERY = 5
"""Pulses between two steps of the search for orphans."""
_AUDITED_KEYS = 500
_LONGEST_PAUSE_S = 5.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Room:
    """What a pool has room for."""

    tasks: int | None
    """How many more may come to wait before it needs more workers; None: it would have no more of them anyway."""
    waiting: int
    """How many waited when that was found."""
    soon_s: float
    """Delayed tasks that are due within this time count as waiting: as long as it takes to start a worker."""


class Keeper:
    """Looks after one queue until cancelled. ``changed`` is called when its figures or its reachability change."""

    def __init__(self, queue: Queue, inspector: Inspector, changed: Callable[[], None]) -> None:
        self.queue_name = queue.name
        self._queue = queue
        self._inspector = inspector
        self._changed = changed
        self.pulse: Pulse | None = None
        """The last one that was felt."""
        self.problem: HeadraceError | None = None
        """Why there is none at the moment."""
        self.felt_at_s = 0.0
        """When, by this process' own clock, that one was asked for."""
        self.flow = Flow()
        self.first_look = asyncio.Event()
        self._rooms: dict[str, Room] = {}
        self._rung = asyncio.Event()
        self._heard_at_s: float | None = None
        self._audit_cursor = "0"
        self._looks = 0

    @property
    def is_forgotten(self) -> bool:
        """Whether Redis answers and does not know the queue."""
        return isinstance(self.problem, UnknownQueue)

    @property
    def is_reachable(self) -> bool | None:
        """Whether Redis answers; None before it was asked."""
        if isinstance(self.problem, BackendError):
            return False
        return None if self.pulse is None else True

    @property
    def current_pulse(self) -> Pulse | None:
        """The last one, unless it is a thing of the past."""
        return self.pulse if self.problem is None else None

    def published(self) -> None:
        """The queue has just been published, so it is known again."""
        if self.is_forgotten:
            self.problem = None

    # ── the bell ─────────────────────────────────────────────────────────────────────────────────────

    def ring(self) -> None:
        """Feel the pulse now."""
        self._rung.set()

    def heard(self) -> None:
        """The bell rang."""
        if self._heard_at_s is None:
            self._heard_at_s = time.monotonic()
        self.ring()

    def take_ring(self) -> float | None:
        """When the bell was heard first since this was last asked, if it was."""
        heard_at_s, self._heard_at_s = self._heard_at_s, None
        return heard_at_s

    async def leave_room(self, pool: str, room: Room, *, at_once: bool) -> None:
        """Have the bell ring when more comes than this pool has room for; from the next look on, or at once.

        At once is for a pool that has just been given more workers: if that is still too little, it is looked at again.
        For all others the next look is soon enough, so that a queue in full flow rings no more than once a second.
        """
        self._rooms[pool] = room
        if at_once and not await self._hang_bell():
            self.ring()

    def forget_pool(self, pool: str) -> None:
        self._rooms.pop(pool, None)

    async def _hang_bell(self) -> bool:
        """False when more has come already."""
        rooms = [room for room in self._rooms.values() if room.tasks is not None]
        room = min(rooms, key=lambda each: each.tasks or 0, default=None)
        hung = None if self.pulse is None else self.pulse.room
        if room is None:
            return hung is None or await self._queue.hang_bell(None, 0)
        # What has come since has been taken off by itself.
        is_right = hung == room.tasks and self.pulse is not None and self.pulse.depth == room.waiting
        return is_right or await self._queue.hang_bell(room.tasks, room.waiting)

    # ── the pulse ────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        failures = 0
        # Queues that were taken over together do not beat together.
        await asyncio.sleep(random.uniform(0, 0.1))
        while True:
            try:
                await self._look()
                failures = 0
                pause_s = PULSE_S
            except Deposed as error:
                self._note(None, error)
                _log.warning("another operator has taken the queue over", queue=self._queue.name)
                return
            except (BackendError, UnknownQueue) as error:
                # An outage is never read as zero: what was known last stays, and nothing is decided on it.
                failures += 1
                self._note(None, error)
                pause_s = min(_LONGEST_PAUSE_S, PULSE_S * failures)
            self.first_look.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s * random.uniform(0.95, 1.05)):
                    await self._rung.wait()

    async def _look(self) -> None:
        self._rung.clear()
        asked_at_s, pulse = await self._feel()
        recovered = await recover(self._queue, pulse)
        promoted = await promote(self._queue, pulse)
        log = _log.bind(tenant=self._queue.tenant, queue=self._queue.name)
        if recovered.reclaimed or recovered.dead_workers:
            log.info("recovered", reclaimed=recovered.reclaimed, dead_workers=list(recovered.dead_workers))
        for (source, target), count in promoted.items():
            log.info("promoted", source=source, target=target, tasks=count)
        if recovered or promoted:
            asked_at_s, pulse = await self._feel()
        # Together: who reads an old pulse must not take it for a new one while the answer is on its way.
        self.felt_at_s = asked_at_s
        self._note(pulse, None)
        # Whoever waits for the figures has them; the rest is not urgent.
        await self._hang_bell()
        if self._looks % _AUDIT_EVERY == 0:
            await self._audit()
        self._looks += 1

    async def _feel(self) -> tuple[float, Pulse]:
        asked_at_s = time.monotonic()
        pulse = await self._inspector.pulse(soon_s=max((room.soon_s for room in self._rooms.values()), default=0.0))
        self.flow.observe(
            waiting=pulse.depth,
            claimed=pulse.claimed,
            executing=pulse.executing,
            runs=sum(runs for _, runs, _ in pulse.service),
            now_s=asked_at_s,
        )
        return asked_at_s, pulse

    async def _audit(self) -> None:
        self._audit_cursor, orphans = await self._queue.audit(self._audit_cursor, count=_AUDITED_KEYS)
        if orphans:
            _log.warning("repaired tasks that were executing without a lease", queue=self._queue.name, tasks=orphans)

    def _note(self, pulse: Pulse | None, problem: HeadraceError | None) -> None:
        before = (self.pulse and self.pulse.figures(), str(self.problem))
        if pulse is not None:
            self.pulse = pulse
        self.problem = problem
        if before != (self.pulse and self.pulse.figures(), str(self.problem)):
            self._changed()
