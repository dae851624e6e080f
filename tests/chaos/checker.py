"""The checker: looks at the queue all the while, and goes red at the first thing that does not add up.

Every look reads the queue's figures at one instant and holds them to these laws:

* what was confirmed has been stored, and nothing has been stored that was not sent;
* every stored task is in exactly one place: waiting, delayed, executing, dead or finished;
* every settle is counted once: as many as there are finished and dead tasks;
* no counter ever goes back.

Besides, it follows each confirmed task by its id until it is settled: the task exists, is in exactly one place,
and its state says which. Settled ones are looked at again at random: they stay, and their state never changes.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, TimeoutError

from headrace import Headrace, TaskState
from headrace.model.errors import BackendUnavailable, UnknownQueue
from headrace.model.figures import QueueStats
from headrace.queue.keys import QueueKeys
from tests.chaos.drill_app import LEVELS, QUEUE
from tests.chaos.places import Found, look_at
from tests.chaos.producing import Ledger

LOOK_EVERY_S = 0.2
_IDS_PER_CALL = 500
_CALLS_PER_LOOK = 4
_SETTLED_PER_LOOK = 100


class Violation(AssertionError):
    """Something was lost, doubled or misplaced."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """What became of every confirmed task."""

    tasks: int
    completed: int
    dead: int
    lost: int
    settled_twice: int


class Checker:
    """Watches one queue over connections of its own, which no drill breaks on purpose."""

    def __init__(self, app: Headrace, client: Redis, ledger: Ledger) -> None:
        self._app = app
        self._client = client
        self._ledger = ledger
        self._keys = QueueKeys(app.tenant, QUEUE)
        self._taken = 0
        self._unsettled: deque[str] = deque()
        self._settled: list[tuple[str, TaskState]] = []
        self._counters: dict[str, int] = {}
        self.workers = 0
        """Live workers as of the last look."""
        self.looks = 0
        self.looks_in_vain = 0
        """Looks that Redis did not answer, because the drill had it killed or frozen."""

    @property
    def completed(self) -> int:
        """Completions counted as of the last look."""
        return self._counters.get("completed", 0)

    @property
    def stored(self) -> int:
        """Tasks stored as of the last look."""
        return self._counters.get("enqueued", 0)

    @property
    def settled(self) -> int:
        """Settled tasks as of the last look, dead letters included."""
        return sum(self._counters.get(name, 0) for name in ("completed", "failed", "cancelled", "dead_letter"))

    @property
    def dead_letters(self) -> int:
        return self._counters.get("dead_letter", 0)

    async def run(self) -> None:
        """Look until cancelled; raises `Violation`."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """One look. While Redis cannot be asked there is nothing to see."""
        confirmed = len(self._ledger.confirmed)
        try:
            stats = await self._app.stats(QUEUE)
            self._check_figures(stats, confirmed)
            await self._follow_unsettled()
            await self._revisit_settled()
        except UnknownQueue as error:
            raise Violation("the queue itself is gone") from error
        except (BackendUnavailable, ConnectionError, TimeoutError, OSError):
            self.looks_in_vain += 1
        else:
            self.looks += 1

    async def account(self) -> Accounts:
        """Look at every confirmed task once more, after the last one was settled."""
        stats = await self._app.stats(QUEUE)
        self._check_figures(stats, len(self._ledger.confirmed))
        found: list[Found] = []
        for chunk in _chunks(self._ledger.confirmed):
            found += await look_at(self._client, self._keys, LEVELS, chunk)
        for task_id, task in zip(self._ledger.confirmed, found, strict=True):
            self._check_place(task_id, task)
        return Accounts(
            tasks=len(found),
            completed=sum(task.state is TaskState.COMPLETED for task in found),
            dead=sum(task.state is TaskState.DEAD_LETTER for task in found),
            lost=sum(task.state is None for task in found),
            settled_twice=_settles(stats) - stats.finished - stats.dead_letter,
        )

    async def check_attempts(self, ids: Iterable[str]) -> None:
        """Each completed task carries the result of the attempt that held its lease, and not of one before it.

        The handlers return the number of their attempt (some of them among other things), and the queue counts
        attempts on its own.
        """
        for task_id in ids:
            record = await self._app.handle(QUEUE, task_id).record()
            attempt = record.retry_count + 1
            settled_by = record.result["attempt"] if isinstance(record.result, dict) else record.result
            if record.state is TaskState.COMPLETED and settled_by != attempt:
                raise Violation(f"{task_id} was settled by attempt {settled_by} while attempt {attempt} held it")

    # ── the laws ─────────────────────────────────────────────────────────────────────────────────────

    def _check_figures(self, stats: QueueStats, confirmed_before: int) -> None:
        counters = stats.counters
        stored = counters.get("enqueued", 0)
        if stored < confirmed_before:
            raise Violation(f"{confirmed_before} tasks were confirmed, and {stored} were stored")
        if stored > self._ledger.offered:
            raise Violation(f"{self._ledger.offered} tasks were sent, and {stored} were stored")
        placed = stats.waiting + stats.delayed + stats.executing + stats.dead_letter + stats.finished
        if stored != placed:
            raise Violation(f"{stored} tasks were stored, and {placed} are in a place")
        if _settles(stats) != stats.finished + stats.dead_letter:
            raise Violation(
                f"{_settles(stats)} settles were counted, and {stats.finished + stats.dead_letter} tasks are settled"
            )
        if counters.get("dangling", 0):
            raise Violation(f"{counters['dangling']} ids led to no task")
        for name, before in self._counters.items():
            if counters.get(name, 0) < before:
                raise Violation(f"the counter {name} went back from {before} to {counters.get(name, 0)}")
        self._counters = dict(counters)
        self.workers = stats.workers.active

    async def _follow_unsettled(self) -> None:
        confirmed = self._ledger.confirmed
        self._unsettled.extend(confirmed[self._taken :])
        self._taken = len(confirmed)
        for _ in range(_CALLS_PER_LOOK):
            ids = [self._unsettled.popleft() for _ in range(min(_IDS_PER_CALL, len(self._unsettled)))]
            if not ids:
                return
            try:
                found = await look_at(self._client, self._keys, LEVELS, ids)
            except BaseException:
                self._unsettled.extend(ids)
                raise
            for task_id, task in zip(ids, found, strict=True):
                self._check_place(task_id, task)
                if task.state is not None and task.state.is_terminal:
                    self._settled.append((task_id, task.state))
                else:
                    self._unsettled.append(task_id)
            if len(self._unsettled) <= _IDS_PER_CALL:
                return

    async def _revisit_settled(self) -> None:
        sample = random.sample(self._settled, min(_SETTLED_PER_LOOK, len(self._settled)))
        found = await look_at(self._client, self._keys, LEVELS, [task_id for task_id, _ in sample])
        for (task_id, state), task in zip(sample, found, strict=True):
            self._check_place(task_id, task)
            if task.state is not state:
                raise Violation(f"{task_id} was {state.value} and is {task.state} now")

    @staticmethod
    def _check_place(task_id: str, task: Found) -> None:
        if task.state is None:
            raise Violation(
                f"{task_id} was confirmed and is lost; its id is in: {', '.join(task.places) or 'no place'}"
            )
        if not task.in_its_place:
            raise Violation(f"{task_id} is {task.state.value} and is in: {', '.join(task.places) or 'no place'}")


def _settles(stats: QueueStats) -> int:
    counters = stats.counters
    ends = sum(counters.get(name, 0) for name in ("completed", "failed", "cancelled", "dead_letter"))
    return ends - counters.get("replayed", 0)


def _chunks(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[start : start + _IDS_PER_CALL] for start in range(0, len(ids), _IDS_PER_CALL))
