"""What can be read off a queue: statistics and worker records."""

from __future__ import annotations

import msgspec

from .states import WorkerActivity, WorkerState


class LevelFigures(msgspec.Struct, frozen=True):
    """One level's waiting tasks."""

    depth: int
    oldest_age_s: float
    last_enqueue_at_s: float | None
    last_dequeue_at_s: float | None


class WorkerFigures(msgspec.Struct, frozen=True):
    """The queue's workers, summed up."""

    active: int
    draining: int
    dead: int
    total_capacity: int
    used_capacity: int


class Percentiles(msgspec.Struct, frozen=True):
    """Over the last thousand completed tasks, in seconds. Zero when there are none."""

    p50_s: float
    p95_s: float
    p99_s: float


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant, by Redis' clock."""

    at_s: float
    paused: bool
    levels: dict[str, LevelFigures]
    """By level name, highest first."""
    executing: int
    delayed: int
    dead_letter: int
    finished: int
    workers: WorkerFigures
    completed_last_minute: int
    failed_last_minute: int
    wait: Percentiles
    run: Percentiles
    counters: dict[str, int]
    """Since the queue exists: enqueued, claimed, completed, completed:low, retrying:low:timeout, …"""

    @property
    def waiting(self) -> int:
        """Ready tasks over all levels."""
        return sum(level.depth for level in self.levels.values())


class WorkerPulse(msgspec.Struct, frozen=True):
    """A live worker, as far as a scaler has to know it."""

    worker: str
    state: WorkerState
    load: int
    capacity: int
    parked: bool
    host: str
    idle_since_s: float


class LevelCounters(msgspec.Struct, frozen=True):
    """How attempts on a level's tasks have ended since the queue exists, by the level each was enqueued with.

    In the order in which ``pulse.lua`` tells them.
    """

    level: str
    completed: int = 0
    failed: int = 0
    """For good, by an error that the handler or its task called permanent."""
    dead_after_retries: int = 0
    dead_as_poison: int = 0
    retried_after_error: int = 0
    retried_after_timeout: int = 0
    retried_after_lease: int = 0
    """Its lease had run out."""

    @property
    def dead_letters(self) -> int:
        """Tasks that became dead letters, whatever has become of them since."""
        return self.dead_after_retries + self.dead_as_poison


class QueueCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What each transition has counted since the queue exists."""

    enqueued: int = 0
    orphans: int = 0
    """Tasks that executed without a lease, and were found."""
    promoted: tuple[tuple[str, str, int], ...] = ()
    """From and to which level, as the configuration has it, and how many tasks."""
    levels: tuple[LevelCounters, ...] = ()


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator has to know of a queue every second, at one instant of Redis' clock.

    The ``…_at_s`` say when there is something to do, by the same clock; None when there is nothing.
    """

    at_s: float
    paused: bool
    levels: tuple[tuple[str, int, float | None], ...]
    """Name, depth and the moment from which the oldest task waits; highest first."""
    executing: int
    delayed: int
    dead_letter: int
    workers: tuple[WorkerPulse, ...]
    workers_dead: int
    completed_last_minute: int
    failed_last_minute: int
    promoted: int
    forward_at_s: float | None
    reclaim_at_s: float | None
    promote_at_s: float | None
    purge_at_s: float | None
    waiting: tuple[tuple[str, str, int], ...] = ()
    """Level, capability set and how many tasks wait there, where there are any."""
    due_soon: int = 0
    """Delayed tasks that are due within the time that was asked for."""
    claimed: int = 0
    """Claims since the queue exists."""
    service: tuple[tuple[str, int, float], ...] = ()
    """Level, how many handlers have ended lately, and how many seconds each took on average."""
    room: int | None = None
    """How many more tasks may come to wait before the bell rings; None: it will not ring."""
    finished: int = 0
    """Completed, failed and cancelled tasks that are still kept."""
    counters: QueueCounters = QueueCounters()

    @property
    def depth(self) -> int:
        """Ready tasks over all levels."""
        return sum(depth for _, depth, _ in self.levels)

    def is_due(self, moment_s: float | None) -> bool:
        """Whether this moment has come."""
        return moment_s is not None and moment_s <= self.at_s

    def figures(self) -> tuple[object, ...]:
        """All that says something about the queue and not about the moment: equal as long as nothing has changed."""
        return (
            self.paused,
            self.levels,
            self.waiting,
            self.due_soon,
            self.executing,
            self.delayed,
            self.dead_letter,
            self.workers,
            self.workers_dead,
            self.completed_last_minute,
            self.failed_last_minute,
            self.promoted,
        )


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the queue sees it."""

    worker: str
    state: WorkerState
    activity: WorkerActivity
    idle_since_s: float | None
    """Since when it holds no task; None while busy."""
    parked: bool
    """Draining, and it has noticed."""
    capacity: int
    load: int
    capabilities: tuple[str, ...]
    version: str
    host: str
    registered_at_s: float
    heartbeat_at_s: float


def percentiles(samples_s: list[float]) -> Percentiles:
    """Nearest-rank percentiles."""
    if not samples_s:
        return Percentiles(0.0, 0.0, 0.0)
    ordered = sorted(samples_s)

    def rank(percent: int) -> float:
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

    return Percentiles(rank(50), rank(95), rank(99))
