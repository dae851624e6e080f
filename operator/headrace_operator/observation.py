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
MANY_BUCKETS: Final = 60
"""How strong a flow is, is told by these, as long as the last few do not contradict them."""
CHANCE: Final = 3.0
"""So many standard deviations may what came lately differ from what usually comes, and still be the same flow."""

REMEMBERED_OF_A_BURST: Final = 0.25
REMEMBERED_OF_A_FLOW: Final = 2.5
"""For so many times ``idle_seconds`` it is remembered what was needed. A burst is over when it is over. What a flow
needs goes up and down by chance, and who is set aside for that and needed again idles in vain, and starts in vain."""

_MOST_STEPS: Final = 10_000


class Flow:
    """What comes into a queue, and whether anything comes out."""

    def __init__(self) -> None:
        self._total: int | None = None
        """Tasks that have come to wait: those that wait, and those that waited until they were claimed."""
        self._buckets: deque[tuple[int, int]] = deque(maxlen=MANY_BUCKETS + 1)
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
        """What comes steadily: neither a burst nor chance should count.

        That is the mean of the middle half of five minutes, unless the median of the last one differs from it by more
        than chance explains: then the flow has changed, and the last minute holds. Nothing while there is nothing to
        do: a flow that has dried up must not keep a worker, however thin it was.
        """
        if not self._has_work:
            return 0.0
        current = int(now_s // BUCKET_S)
        came = dict(self._buckets)
        counts = [came.get(bucket, 0) for bucket in range(current - MANY_BUCKETS, current)]
        lately = statistics.median(counts[-BUCKETS:])
        usually = statistics.fmean(sorted(counts)[MANY_BUCKETS // 4 : -MANY_BUCKETS // 4])
        # Of independent arrivals, the variance of a count is the count.
        has_changed = BUCKETS * (lately - usually) ** 2 > CHANCE**2 * max(lately, usually)
        return (lately if has_changed else usually) / BUCKET_S

    def standstill_s(self, now_s: float) -> float:
        """For how long tasks have been at work without any of them ending."""
        return 0.0 if self._ended_at_s is None else now_s - self._ended_at_s


class PoolHistory:
    """What one pool needed, did and let lie lately."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._needs: deque[tuple[float, int]] = deque()
        """When so many were last needed, falling: whatever was followed by more is of no interest."""
        self._flowed_at_s: float | None = None
        """When something has last come steadily."""
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

    def needed(self, need: int, now_s: float, *, is_flowing: bool = False) -> None:
        if is_flowing:
            self._flowed_at_s = now_s
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now_s, need))

    def recent_need(self, idle_seconds: float, replicas: int, now_s: float) -> int:
        """What is kept at work although it may not be needed now; at least ``replicas`` until enough has been seen.

        The most that a flow needed for long, or a burst shortly before. One worker stays for ``idle_seconds`` after
        whatever it was: a task that comes then begins at once, and needs no operator for that.
        """
        while len(self._needs) > 1 and self._needs[0][0] < now_s - REMEMBERED_OF_A_FLOW * idle_seconds:
            self._needs.popleft()
        is_flowing = self._flowed_at_s is not None and self._flowed_at_s >= now_s - idle_seconds
        remembered_s = (REMEMBERED_OF_A_FLOW if is_flowing else REMEMBERED_OF_A_BURST) * idle_seconds
        if now_s - self._since_s < max(remembered_s, idle_seconds):
            return max(self._most_needed(remembered_s, now_s), replicas)
        return max(self._most_needed(remembered_s, now_s), min(1, self._most_needed(idle_seconds, now_s)))

    def _most_needed(self, within_s: float, now_s: float) -> int:
        last = self._needs[-1][1] if self._needs else 0
        return next((need for at_s, need in self._needs if at_s >= now_s - within_s), last)

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
