"""What is to be looked at again: a set of keys with a time for each.

A key that is added ten times is worked on once. It is never worked on twice at the same moment; what is added meanwhile
makes it due again. A failure is tried again after a pause that doubles.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

K = TypeVar("K", bound=Hashable)

WORKERS = 32
"""How many objects are looked at at once. Nearly all of the time is spent waiting for somebody's answer."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
LONGEST_RUN_S = 60.0
"""One look at one object takes no longer; whatever hangs is given up and tried again."""

_log = structlog.get_logger(__name__)


class Work(Generic[K]):
    """Keys and when they are due."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._under_way: set[K] = set()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._expected: tuple[type[Exception], ...] = ()
        self.moved_at_s = time.monotonic()
        """When a worker has last come round: proof of life."""

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Look at ``key`` at the latest after this time."""
        due_s = time.monotonic() + after_s
        if key in self._due and self._due[key] <= due_s:
            return
        self._due[key] = due_s
        self._count += 1
        heapq.heappush(self._heap, (due_s, self._count, key))
        self._changed.set()

    def clear(self) -> None:
        """Forget everything."""
        self._due.clear()
        self._heap.clear()
        self._failures.clear()

    @property
    def is_idle(self) -> bool:
        """Nothing is due at this moment, and nothing is under way."""
        now_s = time.monotonic()
        return not self._under_way and all(due_s > now_s for due_s in self._due.values())

    async def run(
        self,
        look: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = WORKERS,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """Work until cancelled. ``look`` returns after how many seconds at most it wants to look again, or None.

        Errors that are ``expected`` are told in a sentence; of any other the whole way to it is logged.
        """
        self._expected = (TimeoutError, OSError, *expected)
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(look))

    async def _work(self, look: Callable[[K], Awaitable[float | None]]) -> None:
        while True:
            key = await self._next()
            self._under_way.add(key)
            try:
                async with asyncio.timeout(LONGEST_RUN_S):
                    again_after_s = await look(key)
                self._failures.pop(key, None)
            except Exception as error:  # noqa: BLE001 - one object's trouble must not end the care for all others
                again_after_s = self._pause_s(key)
                _log.warning(
                    "could not reconcile; will try again",
                    object=str(key),
                    error=f"{type(error).__name__}: {error}",
                    again_after_s=round(again_after_s, 2),
                    exc_info=not isinstance(error, self._expected),
                )
            finally:
                self._under_way.discard(key)
                self._changed.set()  # it may have become due meanwhile, and its turn was put off
            if again_after_s is not None:
                # Objects that were made or taken over together do not come back together.
                self.add(key, again_after_s * random.uniform(0.7, 1.0))

    def _pause_s(self, key: K) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 10)) * random.uniform(0.8, 1.0)

    async def _next(self) -> K:
        while True:
            self.moved_at_s = time.monotonic()
            self._changed.clear()
            put_off = []
            wait_s: float | None = 5.0  # for the proof of life
            found: K | None = None
            while self._heap:
                due_s, count, key = self._heap[0]
                if self._due.get(key) != due_s:
                    heapq.heappop(self._heap)  # was brought forward, or is forgotten
                    continue
                if due_s > time.monotonic():
                    wait_s = min(5.0, due_s - time.monotonic())
                    break
                heapq.heappop(self._heap)
                if key in self._under_way:
                    put_off.append((due_s, count, key))
                    continue
                found = key
                break
            for entry in put_off:
                heapq.heappush(self._heap, entry)
            if found is not None:
                del self._due[found]
                return found
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
