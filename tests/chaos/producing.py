"""Tasks on their way in, and the list of those that were confirmed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from headrace import Headrace, HeadraceError, OutOfMemory, TaskHandle
from headrace.app.tasks import TaskCall
from tests.chaos.drill_app import LEVELS, QUEUE

Nap = Callable[[], float]


def mostly_short() -> float:
    """Nineteen handlers in twenty do nothing; the twentieth is long enough to be met by a fault."""
    return random.uniform(0.05, 0.3) if random.random() < 0.05 else 0.0


class Ledger:
    """What was offered to the queue, and what it confirmed. The checker holds the queue to this."""

    def __init__(self) -> None:
        self.confirmed: list[str] = []
        self.offered = 0
        """Every task that was ever sent, those included whose enqueue raised: they may have been stored."""

    async def enqueue(self, app: Headrace, calls: Sequence[TaskCall]) -> list[TaskHandle]:
        """Enqueue, and write down what came of it."""
        self.offered += len(calls)
        handles = await app.enqueue_many(calls)
        self.confirmed += [handle.id for handle in handles]
        return handles

    def add_confirmed(self, ids: Sequence[str]) -> None:
        """Tasks that another process has enqueued."""
        self.offered += len(ids)
        self.confirmed += ids


class Producer:
    """Enqueues as many tasks as have been asked for, in bulk, and never too far ahead of the workers."""

    def __init__(
        self, app: Headrace, ledger: Ledger, completed: Callable[[], int], *, nap: Nap, batch: int, backlog: int
    ) -> None:
        self._app = app
        self._ledger = ledger
        self._completed = completed
        self._nap = nap
        self._batch = batch
        self._backlog = backlog
        self._tasks = [app.remote("step", queue=QUEUE, priority=level) for level in LEVELS]
        self.wanted = 0
        """How many tasks are to be confirmed in the end; raise it at will."""
        self.failures = 0
        """How often enqueue raised; what it was for is then sent as new tasks."""

    @property
    def behind(self) -> bool:
        return len(self._ledger.confirmed) < self.wanted

    async def run(self) -> None:
        """Produce until cancelled."""
        while True:
            missing = self.wanted - len(self._ledger.confirmed)
            if missing <= 0 or len(self._ledger.confirmed) - self._completed() > self._backlog:
                await asyncio.sleep(0.01)
                continue
            calls = [random.choice(self._tasks).call(self._nap()) for _ in range(min(self._batch, missing))]
            try:
                await self._ledger.enqueue(self._app, calls)
            except OutOfMemory:
                raise  # refused, and no drill that uses this fills the memory
            except HeadraceError:
                self.failures += 1
                await asyncio.sleep(0.2)
