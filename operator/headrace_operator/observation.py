"""What has to be remembered between two looks: flows, stand-stills, idle times, and what was needed lately.

All times are of a clock that never jumps and that the caller reads; what Redis' clock says is used once, when something
is seen for the first time.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

BUCKET_S: Final = 5.0
BUCKETS: Final = 12
"""A flow is what comes in most of these; a burst is in one or two of them."""

_MOST_STEPS: Final = 10_000


class Flow:
    """What comes into a queue, and whether anything comes out."""

    def __init__(self) -> None:
        self._total: int | None = None
        """Tasks that have come to wait: those that wait, and those that waited until they were claimed."""
        self._buckets: deque[tuple[int, int]] = deque(maxlen=BUCKETS + 1)
        """Number of the bucket, and what came in it."""
        self._runs: int | None = None
        self._ended_at_s: float | None = None
        """When a handler has last ended, or the first began."""
        self._has_work = False

    def observe(self, *, waiting: int, claimed: int, executing: int, runs: int, now_s: float) -> None:
        """What one pulse tells. ``claimed`` and ``runs`` are counters; ``runs`` may also be set back."""
        total = waiting + claimed
        # A Redis that has lost its data counts anew, and so do we.
        came = 0 if self._total is None else max(0, total - self._total)
        self._total = total
        self._has_work = waiting > 0 or executing > 0
        bucket = int(now_s // BUCKET_S)
        if self._buckets and self._buckets[-1][0] == bucket:
            self._buckets[-1] = (bucket, self._buckets[-1][1] + came)
        else:
            self._buckets.append((bucket, came))
        if executing == 0:
            self._ended_at_s = None
        elif self._ended_at_s is None or runs != self._runs:
            self._ended_at_s = now_s
        self._runs = runs

    def arriving_per_s(self, now_s: float) -> float:
        """What comes steadily: the median over the last minute, in which a burst counts for nothing.

        Nothing while there is nothing to do: a flow that has dried up must not keep a worker, however thin it was.
        """
        if not self._has_work:
            return 0.0
        current = int(now_s // BUCKET_S)
        came = dict(self._buckets)
        return statistics.median(came.get(bucket, 0) for bucket in range(current - BUCKETS, current)) / BUCKET_S

    def standstill_s(self, now_s: float) -> float:
        """For how long tasks have been at work without any of them ending."""
        return 0.0 if self._ended_at_s is None else now_s - self._ended_at_s


class PoolHistory:
    """What one pool needed, did and let lie lately."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._needs: deque[tuple[float, int]] = deque()
        """When so many were last needed, falling: whatever was followed by more is of no interest."""
        self._steps: deque[tuple[float, int]] = deque(maxlen=_MOST_STEPS)
        self._idle: dict[str, tuple[float, float, float]] = {}
        """By worker: the moment its record names, for how long that was when it was first seen, and when that was."""

    def idle_s(self, worker: str, idle_since_s: float, idle_by_redis_s: float, now_s: float) -> float:
        """For how long a worker has held nothing: from the first sight on by our own clock, whatever Redis' does."""
        known = self._idle.get(worker)
        if known is None or known[0] != idle_since_s:
            known = self._idle[worker] = (idle_since_s, max(0.0, idle_by_redis_s), now_s)
        return known[1] + now_s - known[2]

    def forget_all_but(self, workers: set[str]) -> None:
        for worker in self._idle.keys() - workers:
            del self._idle[worker]

    def needed(self, need: int, now_s: float) -> None:
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now_s, need))

    def recent_need(self, window_s: float, replicas: int, now_s: float) -> int:
        """The most that was needed within that time; at least ``replicas`` until so much time has been seen."""
        while len(self._needs) > 1 and self._needs[0][0] < now_s - window_s:
            self._needs.popleft()
        most = self._needs[0][1] if self._needs else 0
        return max(most, replicas) if now_s - self._since_s < window_s else most

    def stepped(self, change: int, now_s: float) -> None:
        if change:
            self._steps.append((now_s, change))

    def added(self, window_s: float, now_s: float) -> int:
        """Pods that were added within that time."""
        return sum(change for _, change in self._recent_steps(window_s, now_s) if change > 0)

    def removed(self, window_s: float, now_s: float) -> int:
        return -sum(change for _, change in self._recent_steps(window_s, now_s) if change < 0)

    def _recent_steps(self, window_s: float, now_s: float) -> list[tuple[float, int]]:
        return [step for step in self._steps if step[0] > now_s - window_s]
