"""The same pool, run by somebody who knows what will come and how long it will take.

It has the same bounds, the same targets, the same dispatch and the same idle rule as the policy: a pod leaves when it
has held nothing for ``idle_seconds``, never before, and workers that are not needed are set aside so that they can. Its
pods take as long to start as the policy's, and the time is wasted in the same way. One thing is different: it has read
the trace. So it gives the order so much earlier, and the pod is ready at the moment at which it is wanted.

Whether a number of pods is *enough* for some time ahead is found by a replay: that many pods, no more and no fewer for
the whole of that time, get what waits now, keep what they hold, and get all that arrives within that time, strictly by
level as the queue hands it out. They are enough if every one of these tasks begins within its target. Pods that are
beyond that number finish what they hold and get nothing more; they are those that hold nothing, then those that are
done first. The least number that is enough is found by bisection.

**More** pods: while tasks wait, as many as are enough for what arrives within the target's time, because later tasks
need not begin before a later decision; but no more than can be filled at once, because the others can still be started
when there is something for them. It decides every two seconds, and whenever a task comes that cannot begin at once and
has not been foreseen.

**Fewer**: workers beyond what is enough for the next ``idle_seconds`` are set aside. One that is needed again within
that time would idle and not leave.

So it has the fewest pods, moment by moment, with which everything still begins in time. It is not proven to be the
plan with the least waste, and it is not: who keeps a pod at work that is not needed wastes nothing by the measure's
letter, while this one sets the pod aside and pays ``idle_seconds`` for it. That is why the pod-seconds of both are
told as well: a policy that saves waste by keeping pods is seen there.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from benchmarks.scaling.model import Pool, Settings, Verdict, Worker
from benchmarks.scaling.traces import Trace

LOOKS_EVERY_S: Final = 2.0

_A_LITTLE_S: Final = 1e-6
"""Moments that are sums of others are not exact."""


class Clairvoyant:
    """A scaler that knows the trace."""

    foresees = True

    def __init__(self, trace: Trace, settings: Settings) -> None:
        rank = {level: index for index, level in enumerate(trace.levels)}
        self._settings = settings
        self._tasks = [(task.at_s, rank[task.level], task.duration_s) for task in trace.tasks]
        self._at_s = [task.at_s for task in trace.tasks]
        self._enough = 0
        self._spare = 0
        self._weighed_s = -math.inf
        """When it was last found out how many are enough, which takes long: not for each task that comes."""

    def look(self, pool: Pool) -> Verdict:
        settings, waiting, current = self._settings, pool.n_waiting, len(pool.workers)
        # Who is done last comes first: the end of the list is what can be done without.
        workers = sorted(pool.workers.values(), key=_done_s, reverse=True)
        idle_s = [pool.now_s - each.idle_since_s for each in workers if not each.held]

        replicas, foreseen = current, False
        if waiting:
            fillable = min(settings.max_replicas, current + math.ceil(waiting / settings.concurrency))
            replicas = self._least(pool, workers, current, fillable, settings.target_s, guess=current)
            foreseen = replicas < fillable
        if replicas == current:
            leaving = sum(each >= settings.idle_seconds - _A_LITTLE_S for each in idle_s)
            replicas = max(current - leaving, min(settings.min_replicas, settings.max_replicas))

        is_due = pool.now_s - self._weighed_s >= LOOKS_EVERY_S - _A_LITTLE_S
        if is_due or replicas != current or (waiting and self._spare):
            self._enough = self._least(pool, workers, 0, replicas, settings.idle_seconds, guess=self._enough)
            self._weighed_s = pool.now_s
        spare = self._spare = max(0, replicas - max(self._enough, settings.min_replicas))
        room: int | None = None
        if not waiting:
            room = max(0, (replicas - spare) * settings.concurrency - pool.executing)
        elif not foreseen:
            room = 0 if replicas < settings.max_replicas else None
        due_s = [settings.idle_seconds - each for each in idle_s if each < settings.idle_seconds - _A_LITTLE_S]
        return Verdict(replicas, spare, room, min([LOOKS_EVERY_S, *due_s]))

    def _least(self, pool: Pool, workers: Sequence[Worker], low: int, high: int, ahead_s: float, *, guess: int) -> int:
        """The least number of pods between the two that is enough, or the higher one if none is."""
        guess = min(max(guess, low), high)
        if low < high:
            # Most of the time nothing has changed since the last look.
            if not self._is_enough(pool, workers, guess, ahead_s):
                low = min(guess + 1, high)
            elif guess == low or not self._is_enough(pool, workers, guess - 1, ahead_s):
                return guess
            else:
                high = guess - 1
        while low < high:
            middle = (low + high) // 2
            if self._is_enough(pool, workers, middle, ahead_s):
                high = middle
            else:
                low = middle + 1
        return high

    def _is_enough(self, pool: Pool, workers: Sequence[Worker], pods: int, ahead_s: float) -> bool:
        now_s, concurrency, target_s = pool.now_s, self._settings.concurrency, self._settings.target_s
        tasks, index = self._tasks, pool.came
        until = bisect_right(self._at_s, now_s + ahead_s)
        left = pool.n_waiting
        if not pods:
            return not left and index == until
        free_s = [end_s for each in workers[:pods] for end_s in each.ends_s]
        free_s += [now_s] * (pods * concurrency - len(free_s))
        heapq.heapify(free_s)
        queues = [[(task.at_s, task.duration_s) for task in queue] for queue in pool.waiting.values()]
        for queue in queues:
            queue.reverse()  # who goes first is last, where it is cheap to take
        arrived: list[list[tuple[float, float]]] = [[] for _ in queues]
        while left or index < until:
            begin_s = free_s[0]
            if not left:
                begin_s = max(begin_s, tasks[index][0])
            while index < until and tasks[index][0] <= begin_s:
                at_s, rank, duration_s = tasks[index]
                arrived[rank].append((at_s, duration_s))
                index += 1
                left += 1
            for rank, queue in enumerate(queues):
                if not queue and arrived[rank]:
                    queue, arrived[rank] = arrived[rank][::-1], []
                    queues[rank] = queue
                if queue:
                    at_s, duration_s = queue.pop()
                    break
            left -= 1
            if begin_s > at_s + target_s:
                return False
            heapq.heapreplace(free_s, begin_s + duration_s)
        return True


def _done_s(worker: Worker) -> tuple[float, float]:
    return max(worker.ends_s, default=-math.inf), worker.idle_since_s
