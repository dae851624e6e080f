"""What is told of a queue: from its pulse to values by metric and label. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from headrace.model.figures import Pulse, QueueCounters
from headrace.model.states import WorkerState

Key = tuple[str, ...]
"""A metric's name, and the values of its labels beside namespace and queue."""


@dataclass(frozen=True, slots=True)
class QueueMetric:
    """A metric of queues, as docs/metrics.md has it."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    """Those beside namespace and queue."""
    is_counter: bool = False
    levels: int = 0
    """How many of these labels, from the first on, are names of levels."""
    of_many: Literal["sum", "highest", "lowest"] = "sum"
    """What many queues amount to that have no series of their own."""


DEPTH: Final = "headrace_queue_depth"
OLDEST: Final = "headrace_queue_oldest_age_seconds"
PAUSED: Final = "headrace_queue_paused"
REACHABLE: Final = "headrace_queue_backend_reachable"
TASKS: Final = "headrace_task_state_total"
ENQUEUED: Final = "headrace_tasks_enqueued_total"
COMPLETED: Final = "headrace_tasks_completed_total"
FAILED: Final = "headrace_tasks_failed_total"
DEAD_LETTERS: Final = "headrace_tasks_dlq_total"
RETRIES: Final = "headrace_task_retries_total"
PROMOTED: Final = "headrace_tasks_promoted_total"
ORPHANS: Final = "headrace_orphans_repaired_total"
WORKERS: Final = "headrace_workers_total"
SLOTS_USED: Final = "headrace_worker_capacity_used_ratio"

QUEUE_METRICS: Final[Mapping[str, QueueMetric]] = {
    metric.name: metric
    for metric in (
        QueueMetric(DEPTH, "Tasks that wait", ("priority",), levels=1),
        QueueMetric(OLDEST, "For how long the oldest of them has waited", ("priority",), levels=1, of_many="highest"),
        QueueMetric(PAUSED, "1 while nothing is handed out", of_many="highest"),
        QueueMetric(REACHABLE, "1 while Redis answers", of_many="lowest"),
        QueueMetric(TASKS, "Tasks as they are now", ("status",)),
        QueueMetric(ENQUEUED, "Tasks that were enqueued", is_counter=True),
        QueueMetric(COMPLETED, "Tasks that were completed", ("priority",), levels=1, is_counter=True),
        QueueMetric(FAILED, "Tasks that ended without success", ("priority", "reason"), levels=1, is_counter=True),
        QueueMetric(DEAD_LETTERS, "Tasks that became dead letters", ("priority",), levels=1, is_counter=True),
        QueueMetric(
            RETRIES, "Attempts that failed and are tried again", ("priority", "reason"), levels=1, is_counter=True
        ),
        QueueMetric(PROMOTED, "Tasks that were promoted", ("from", "to"), levels=2, is_counter=True),
        QueueMetric(ORPHANS, "Tasks that executed without a lease, and were repaired", is_counter=True),
        QueueMetric(WORKERS, "Workers that serve the queue", ("status",)),
        QueueMetric(SLOTS_USED, "Slots in use of all slots of its active workers"),
    )
}


class QueueView(NamedTuple):
    """A TaskQueue, as far as its leader knows how it is."""

    namespace: str
    name: str
    created_at: str
    """When, as Kubernetes writes it: the oldest are told of one by one."""
    is_reachable: bool | None
    """Whether Redis answers; None while that is not known."""
    pulse: Pulse | None
    """None unless Redis answers: what was known before an outage is not told."""


@dataclass(slots=True)
class QueueReport:
    """What is told of a queue, or of many."""

    gauges: dict[Key, float] = field(default_factory=dict)
    counters: dict[Key, int] = field(default_factory=dict)
    slots: int = 0
    """Of active workers."""
    slots_used: int = 0

    @property
    def slots_used_ratio(self) -> float | None:
        """A worker that has claimed ahead holds more tasks than it has slots, and is no more than full."""
        return min(1.0, self.slots_used / self.slots) if self.slots else None


def report_on(view: QueueView) -> QueueReport:
    """What is known of the queue at this moment, but for what it has counted."""
    report = QueueReport()
    if view.is_reachable is not None:
        report.gauges[REACHABLE,] = float(view.is_reachable)
    if view.pulse is not None:
        _add_tasks(report, view.pulse)
        _add_workers(report, view.pulse)
    return report


def _add_tasks(report: QueueReport, pulse: Pulse) -> None:
    gauges = report.gauges
    for level, depth, oldest_at_s in pulse.levels:
        gauges[DEPTH, level] = depth
        gauges[OLDEST, level] = 0.0 if oldest_at_s is None else max(0.0, pulse.at_s - oldest_at_s)
    gauges[PAUSED,] = float(pulse.paused)
    gauges[TASKS, "queued"] = pulse.depth
    gauges[TASKS, "delayed"] = pulse.delayed
    gauges[TASKS, "executing"] = pulse.executing
    gauges[TASKS, "dead_letter"] = pulse.dead_letter
    gauges[TASKS, "finished"] = pulse.finished


def _add_workers(report: QueueReport, pulse: Pulse) -> None:
    active = [worker for worker in pulse.workers if worker.state is WorkerState.ACTIVE]
    report.gauges[WORKERS, "active"] = len(active)
    report.gauges[WORKERS, "draining"] = len(pulse.workers) - len(active)
    report.gauges[WORKERS, "dead"] = pulse.workers_dead
    report.slots = sum(worker.capacity for worker in active)
    report.slots_used = sum(min(worker.load, worker.capacity) for worker in active)


def count(counted: QueueCounters) -> dict[Key, int]:
    """What a queue has counted since it exists."""
    counters: dict[Key, int] = {(ENQUEUED,): counted.enqueued, (ORPHANS,): counted.orphans}
    for source, target, promoted in counted.promoted:
        counters[PROMOTED, source, target] = promoted
    for level in counted.levels:
        name = level.level
        counters[COMPLETED, name] = level.completed
        counters[FAILED, name, "permanent"] = level.failed
        counters[FAILED, name, "max_retries_exceeded"] = level.dead_after_retries
        counters[FAILED, name, "poison"] = level.dead_as_poison
        counters[DEAD_LETTERS, name] = level.dead_letters
        counters[RETRIES, name, "error"] = level.retried_after_error
        counters[RETRIES, name, "timeout"] = level.retried_after_timeout
        counters[RETRIES, name, "lease_expired"] = level.retried_after_lease
    return counters
