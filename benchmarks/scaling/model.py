"""A pool of workers before a queue, event by event.

Tasks wait by level; the highest level goes first, and on a level who came first (the queue's `Strict`). Of the workers
that hold nothing, the one that has waited the longest gets the next task, because Redis serves blocked clients in the
order in which they came; if there is none, the one with a free slot that has waited the longest for more.

What decides on the number of pods is a `Scaler`. It is asked when the bell rings, which is when more tasks have come
than it left room for, and when the time has come that it named. A new pod is ready some time after the decision; one
that was foreseen has been started so much earlier, and is ready with it. One that goes is gone at once. As many workers
as the scaler has to spare are set aside as soon as they hold nothing: they get no tasks until they are taken back.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from benchmarks.scaling.traces import Task, Trace

SAMPLE_S: Final = 10.0

_READY, _END, _LOOK = range(3)
_RUNS_REMEMBERED: Final = 10_000
"""As in `settle.lua`."""
_TOLD_EVERY_S: Final = 600.0
_LONGEST_AFTER_S: Final = 86400.0
"""A scaler that still has pods so long after the last task has ended would have them for ever."""


class Settings(NamedTuple):
    """What a WorkerPool says, and how long its pods take to start."""

    concurrency: int = 5
    min_replicas: int = 0
    max_replicas: int = 50
    idle_seconds: float = 120.0
    target_s: float = 30.0
    backlog_per_worker: float = 50.0
    start_s: float = 2.0


class Verdict(NamedTuple):
    """What a scaler wants."""

    replicas: int
    spare: int
    room: int | None
    """So many more tasks may come before it wants to be asked; None: any number."""
    again_s: float
    """It wants to be asked after that time in any case."""


class Worker:
    """A pod."""

    __slots__ = ("ends_s", "held", "idle_since_s", "is_ready", "name")

    def __init__(self, name: int, now_s: float) -> None:
        self.name = name
        self.held = 0
        self.is_ready = False
        self.idle_since_s = now_s
        self.ends_s: list[float] = []
        """When what it holds will end, which is for a clairvoyant's eyes only."""


class Pool:
    """What a scaler can see. (The clairvoyant one has read the trace as well.)"""

    def __init__(self, settings: Settings, levels: tuple[str, ...]) -> None:
        self.settings = settings
        self.levels = levels
        self.now_s = 0.0
        self.waiting: dict[str, deque[Task]] = {level: deque() for level in levels}
        self.workers: dict[int, Worker] = {}
        self.came = 0
        self.begun = 0
        self.ended = 0
        self.runs: dict[str, int] = dict.fromkeys(levels, 0)
        self.run_s: dict[str, float] = dict.fromkeys(levels, 0.0)
        """Of handlers that ended lately, as `settle.lua` keeps them."""

    @property
    def executing(self) -> int:
        return self.begun - self.ended

    @property
    def n_waiting(self) -> int:
        return self.came - self.begun


class Scaler(Protocol):
    """What decides."""

    foresees: bool
    """Whether a pod was started in time, so that it is ready at the moment at which it is wanted."""

    def look(self, pool: Pool) -> Verdict: ...


class Run(NamedTuple):
    """What became of a load."""

    tasks: int
    pod_s: float
    wasted_s: float
    """Pod-seconds in which a pod held no task, its start included."""
    busy_slot_s: float
    waited_s: list[float]
    """By task, in the order in which they began."""
    changes: tuple[tuple[float, int], ...]
    """When the number of pods changed, and to what. A foreseen pod counts from when it is ready."""
    executing: tuple[int, ...]
    """Busy slots at regular moments, `SAMPLE_S` apart."""
    looks: int

    @property
    def started(self) -> int:
        """Pods, over the whole time."""
        numbers = [0, *(number for _, number in self.changes)]
        return sum(max(0, later - earlier) for earlier, later in pairwise(numbers))


class Simulation(Pool):
    """One load on one pool."""

    def __init__(
        self, trace: Trace, scaler: Scaler, settings: Settings, progress: Callable[[float], None] | None = None
    ) -> None:
        super().__init__(settings, trace.levels)
        self._trace = trace
        self._scaler = scaler
        self._progress = progress
        self._events: list[tuple[float, int, int, Worker | None, Task | None]] = []
        self._order = 0
        self._idle: OrderedDict[int, Worker] = OrderedDict()
        """Workers that hold nothing, who has waited the longest first."""
        self._roomy: OrderedDict[int, Worker] = OrderedDict()
        """Workers that hold something and have a free slot."""
        self._aside: OrderedDict[int, Worker] = OrderedDict()
        self._spare = 0
        self._room: int | None = 0
        self._came_since_look = 0
        self._look_number = 0
        self._named = 0
        self._busy = 0
        self._counted_s = 0.0
        self._pod_s = self._wasted_s = self._busy_slot_s = 0.0
        self._waited_s: list[float] = []
        self._changes: list[tuple[float, int]] = []
        self._samples: list[int] = []

    def run(self) -> Run:
        """From the first task until the last has ended and nothing but the minimum is left."""
        tasks, events = self._trace.tasks, self._events
        last_s = tasks[-1].at_s if tasks else 0.0
        told_s = 0.0
        self._look()
        while True:
            next_s = events[0][0]
            if self.came < len(tasks) and tasks[self.came].at_s <= next_s:
                self._arrive(tasks[self.came])
            else:
                if self.came == len(tasks) and self._is_over():
                    break
                if next_s > last_s + _LONGEST_AFTER_S:
                    raise RuntimeError("the pool does not come to rest")
                self._happen()
            if self._progress and self.now_s - told_s > _TOLD_EVERY_S:
                told_s = self.now_s
                self._progress(min(1.0, self.now_s / last_s) if last_s else 1.0)
        if self._progress:
            self._progress(1.0)
        return Run(
            tasks=self.ended,
            pod_s=self._pod_s,
            wasted_s=self._wasted_s,
            busy_slot_s=self._busy_slot_s,
            waited_s=self._waited_s,
            changes=tuple(self._changes),
            executing=tuple(self._samples),
            looks=self._look_number,
        )

    def _is_over(self) -> bool:
        return self.ended == self.came and len(self.workers) <= self.settings.min_replicas

    # ── events ───────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, task: Task) -> None:
        self._advance(task.at_s)
        self.waiting[task.level].append(task)
        self.came += 1
        self._came_since_look += 1
        self._dispatch()
        following = self._trace.tasks[self.came] if self.came < len(self._trace.tasks) else None
        if following is not None and following.at_s == task.at_s:
            return  # what comes in one call rings once
        if self._room is not None and self._came_since_look > self._room:
            self._look()

    def _happen(self) -> None:
        at_s, kind, number, worker, task = heapq.heappop(self._events)
        if kind == _LOOK:
            if number != self._look_number:
                return  # the bell has rung since
            self._advance(at_s)
            self._look()
            return
        assert worker is not None
        self._advance(at_s)
        if kind == _READY:
            worker.is_ready = True
            self._rest(worker)
        else:
            assert task is not None
            self._end(worker, task)
        self._dispatch()

    def _end(self, worker: Worker, task: Task) -> None:
        self.ended += 1
        self._remember(task)
        worker.held -= 1
        worker.ends_s.remove(self.now_s)
        if worker.held == 0:
            self._busy -= 1
            self._roomy.pop(worker.name, None)
            self._rest(worker)
        elif worker.name not in self._roomy:
            self._roomy[worker.name] = worker

    def _remember(self, task: Task) -> None:
        self.runs[task.level] += 1
        self.run_s[task.level] += task.duration_s
        if self.runs[task.level] > _RUNS_REMEMBERED:
            self.runs[task.level] //= 2
            self.run_s[task.level] /= 2

    def _rest(self, worker: Worker) -> None:
        """It holds nothing from now on."""
        worker.idle_since_s = self.now_s
        if len(self._aside) < self._spare:
            self._aside[worker.name] = worker
        else:
            self._idle[worker.name] = worker

    # ── tasks to workers ─────────────────────────────────────────────────────────────────────────────

    def _dispatch(self) -> None:
        while self.came > self.begun:
            if self._idle:
                _, worker = self._idle.popitem(last=False)
                self._busy += 1
            elif self._roomy:
                _, worker = self._roomy.popitem(last=False)
            else:
                return
            task = next(queue for queue in self.waiting.values() if queue).popleft()
            worker.held += 1
            if worker.held < self.settings.concurrency:
                self._roomy[worker.name] = worker
            self.begun += 1
            self._waited_s.append(self.now_s - task.at_s)
            end_s = self.now_s + task.duration_s
            worker.ends_s.append(end_s)
            self._add_event(end_s, _END, worker, task)

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        self._look_number += 1
        verdict = self._scaler.look(self)
        self._resize(verdict.replicas)
        self._set_aside(verdict.spare)
        self._room, self._came_since_look = verdict.room, 0
        self._add_event(self.now_s + verdict.again_s, _LOOK, None, None)

    def _resize(self, replicas: int) -> None:
        before = len(self.workers)
        if replicas == before:
            return
        start_s = self.settings.start_s
        for _ in range(replicas - before):
            worker = Worker(self._named, self.now_s)
            self._named += 1
            self.workers[worker.name] = worker
            self._add_event(self.now_s + (0.0 if self._scaler.foresees else start_s), _READY, worker, None)
            if self._scaler.foresees:
                self._pod_s += start_s
                self._wasted_s += start_s
        if replicas < before:
            idle = sorted(
                [*self._idle.values(), *self._aside.values()], key=lambda each: (each.idle_since_s, each.name)
            )
            leaving = idle[: before - replicas]
            assert len(leaving) == before - replicas, "a worker that holds something was to go"
            for worker in leaving:
                del self.workers[worker.name]
                self._idle.pop(worker.name, None)
                self._aside.pop(worker.name, None)
        self._changes.append((self.now_s, len(self.workers)))

    def _set_aside(self, spare: int) -> None:
        self._spare = spare
        while len(self._aside) > spare:
            # Who has been aside for the longest is the next to go, so the others come back first.
            _, worker = self._aside.popitem()
            self._idle[worker.name] = worker
        while len(self._aside) < spare and self._idle:
            _, worker = self._idle.popitem(last=False)
            self._aside[worker.name] = worker
        self._dispatch()

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────

    def _add_event(self, at_s: float, kind: int, worker: Worker | None, task: Task | None) -> None:
        # A look is known by its number, the others by the order in which they were made.
        self._order += 1
        number = self._look_number if kind == _LOOK else self._order
        heapq.heappush(self._events, (at_s, kind, number, worker, task))

    def _advance(self, to_s: float) -> None:
        while len(self._samples) * SAMPLE_S <= to_s:
            self._samples.append(self.executing)
        passed_s = to_s - self._counted_s
        if passed_s > 0:
            pods = len(self.workers)
            self._pod_s += pods * passed_s
            self._wasted_s += (pods - self._busy) * passed_s
            self._busy_slot_s += self.executing * passed_s
            self._counted_s = to_s
        self.now_s = to_s
