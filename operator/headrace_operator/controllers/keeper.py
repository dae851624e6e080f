"""One queue in care: its pulse every second, and what follows from it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from headrace.model.errors import BackendError, Deposed, HeadraceError, UnknownQueue
from headrace.model.figures import Pulse
from headrace.queue.inspection import Inspector
from headrace.queue.queue import Queue

from .promotion import promote
from .recovery import recover

PULSE_S = 1.0
_AUDIT_EVERY = 5
"""Pulses between two steps of the search for orphans."""
_AUDITED_KEYS = 500
_LONGEST_PAUSE_S = 5.0

_log = structlog.get_logger(__name__)


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
        self.first_look = asyncio.Event()
        self._audit_cursor = "0"
        self._looks = 0

    @property
    def is_forgotten(self) -> bool:
        """Whether Redis answers and does not know the queue."""
        return isinstance(self.problem, UnknownQueue)

    def published(self) -> None:
        """The queue has just been published, so it is known again."""
        if self.is_forgotten:
            self.problem = None

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
            await asyncio.sleep(pause_s * random.uniform(0.95, 1.05))

    async def _look(self) -> None:
        pulse = await self._inspector.pulse()
        recovered = await recover(self._queue, pulse)
        promoted = await promote(self._queue, pulse)
        if self._looks % _AUDIT_EVERY == 0:
            await self._audit()
        self._looks += 1
        log = _log.bind(tenant=self._queue.tenant, queue=self._queue.name)
        if recovered.reclaimed or recovered.dead_workers:
            log.info("recovered", reclaimed=recovered.reclaimed, dead_workers=list(recovered.dead_workers))
        for (source, target), count in promoted.items():
            log.info("promoted", source=source, target=target, tasks=count)
        if recovered or promoted:
            pulse = await self._inspector.pulse()
        self._note(pulse, None)

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
