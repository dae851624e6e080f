"""What a worker tells Prometheus about itself; ``docs/metrics.md`` says what each figure means.

The worker's loop counts, and the heartbeat's thread reads when somebody asks, without a lock between them:
`headrace.observability.histogram` says why that is safe. Failed heartbeats are counted where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.model.outcomes import Outcome
from headrace.model.task import ClaimedTask
from headrace.observability import exposition
from headrace.observability.histogram import Histogram

from .pool import PoolMembership
from .running import RunningTask

if TYPE_CHECKING:
    from headrace.observability.exposition import Metric

MOST_TASK_TYPES = 100
"""Types that are named; a program that makes up types as it goes must not fill Prometheus."""
OTHER_TYPES = "(other)"
UNKNOWN_TYPES = "(unknown)"
"""Types without a handler here. Their names come from whoever enqueued them and become no label."""

_WAIT_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600)
_RUN_BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600)
_COMPLETED = Outcome.COMPLETED  # what it nearly always is; asked for by its identity, because hashing one is slow
_STATUSES = {outcome: outcome.value for outcome in (_COMPLETED, Outcome.FAILED, Outcome.RETRY, Outcome.CANCELLED)}
"""What a snooze or a handing back ends is no attempt: the task goes on as if it had not been begun."""


class WorkerMetrics:
    """One worker's figures since its start."""

    def __init__(self, membership: PoolMembership, slots: int, slots_used: Callable[[], int]) -> None:
        self._membership = membership
        self._slots = slots
        self._slots_used = slots_used
        self._waited = Histogram(_WAIT_BOUNDS_S)
        self._lasted = Histogram(_WAIT_BOUNDS_S)
        self._ran = Histogram(_RUN_BOUNDS_S)
        self._named: set[str] = {UNKNOWN_TYPES}
        self._heartbeat_failures = 0

    def claimed(self, queue: str, tasks: Sequence[ClaimedTask]) -> None:
        """These tasks have waited."""
        for task in tasks:
            # Less than nothing when Redis' clock was set back meanwhile; a sum that falls looks like a restart.
            self._waited.observe((queue, task.level), task.waited_s if task.waited_s > 0.0 else 0.0)

    def ran(self, queue: str, task_type: str, seconds: float) -> None:
        """A handler has ended after this time."""
        name = task_type if task_type in self._named else self._name(task_type)
        self._ran.observe((queue, name), seconds)

    def _name(self, task_type: str) -> str:
        if len(self._named) > MOST_TASK_TYPES:
            return OTHER_TYPES
        self._named.add(task_type)
        return task_type

    def settled(self, task: RunningTask, outcome: Outcome) -> None:
        """Redis has taken this outcome; the attempt itself ended when its handler did."""
        status = "completed" if outcome is _COMPLETED else _STATUSES.get(outcome)
        if status is not None and task.ended_monotonic_s is not None:
            # From the enqueue to the claim by Redis' clock, and from there on by ours: no two clocks are compared.
            seconds = task.age_s + task.ended_monotonic_s - task.claimed_monotonic_s
            self._lasted.observe((task.queue, task.claimed.level, status), seconds if seconds > 0.0 else 0.0)

    def heartbeat_failed(self) -> None:
        """In the heartbeat's thread."""
        self._heartbeat_failures += 1

    def answer(self) -> bytes:
        """What ``GET /metrics`` is answered with."""
        return exposition.answer(self._families)

    def _families(self) -> Iterator[Metric]:
        own = {"namespace": self._membership.namespace, "pool": self._membership.pool}
        shown = self._membership.task_queue
        yield exposition.histogram(
            "headrace_queue_age_seconds",
            "How long tasks had waited when they were claimed",
            own,
            ["priority"],
            self._waited,
            shown,
        )
        yield exposition.histogram(
            "headrace_task_duration_seconds",
            "From the enqueue of tasks to the end of the attempt that settled them",
            own,
            ["priority", "status"],
            self._lasted,
            shown,
        )
        yield exposition.histogram(
            "headrace_task_run_seconds", "How long handlers ran", own, ["task"], self._ran, shown
        )
        used = min(self._slots_used(), self._slots)
        yield exposition.gauge("headrace_worker_slots", "Tasks it may run at a time", own, self._slots)
        yield exposition.gauge("headrace_worker_slots_used", "Tasks it runs", own, used)
        yield exposition.counter(
            "headrace_worker_heartbeat_failures",
            "Heartbeats that did not reach Redis",
            own,
            self._heartbeat_failures,
        )
