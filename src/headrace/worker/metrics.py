"""What a worker tells Prometheus about itself; ``docs/metrics.md`` says what each figure means.

The worker's loop counts, and the heartbeat's thread reads when somebody asks, without a lock between them:
`headrace.observability.histogram` says why that is safe. Failed heartbeats are counted where they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.model.outcomes import Outcome, SettleStatus
from headrace.model.task import ClaimedTask
from headrace.observability import exposition
from headrace.observability.histogram import Histogram

from .pool import PoolMembership
from .running import Ended, RunningTask

if TYPE_CHECKING:
    from headrace.observability.exposition import Metric

MOST_TASK_TYPES = 100
"""Types that are named; a program that makes up types as it goes must not fill Prometheus."""
OTHER_TYPES = "(other)"
UNKNOWN_TYPES = "(unknown)"
"""Types without a handler here. Their names come from whoever enqueued them and become no label."""

_WAIT_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600)
_RUN_BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600)
_SETTLED, _DUPLICATE = SettleStatus.SETTLED, SettleStatus.DUPLICATE
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
        self._named: set[str] = set()
        self._heartbeat_failures = 0

    def claimed(self, queue: str, tasks: Sequence[ClaimedTask]) -> None:
        """These tasks have waited."""
        waits_s = defaultdict[str, list[float]](list)
        for task in tasks:
            # Less than nothing when Redis' clock was set back meanwhile; a sum that falls looks like a restart.
            waits_s[task.level].append(task.waited_s if task.waited_s > 0.0 else 0.0)
        for level, values in waits_s.items():
            self._waited.observe_all((queue, level), values)

    def settled(self, queue: str, ended: Sequence[Ended], statuses: Sequence[SettleStatus]) -> None:
        """Redis has answered. An attempt has ended when its handler did, not now."""
        runs_s = defaultdict[str, list[float]](list)
        lasted_s = defaultdict[tuple[str, str], list[float]](list)
        for (task, settlement), status in zip(ended, statuses, strict=True):
            ended_s = task.ended_monotonic_s
            if ended_s is None:
                continue  # it goes back without having been begun
            context, begun_s = task.context, task.begun_monotonic_s
            if context is not None and begun_s is not None:
                runs_s[context.type].append(ended_s - begun_s)
            outcome = settlement.outcome
            ending = "completed" if outcome is _COMPLETED else _STATUSES.get(outcome)
            if ending is not None and (status is _SETTLED or status is _DUPLICATE):
                # From the enqueue to the claim by Redis' clock, and from there on by ours: no two are compared.
                lasted = task.age_s + ended_s - task.claimed_monotonic_s
                lasted_s[task.claimed.level, ending].append(lasted if lasted > 0.0 else 0.0)
        for task_type, values in runs_s.items():
            self._ran.observe_all((queue, self._name(task_type)), values)
        for labels, values in lasted_s.items():
            self._lasted.observe_all((queue, *labels), values)

    def left(self, task: RunningTask) -> None:
        """A handler has ended whose lease is another worker's."""
        if task.context is not None and task.begun_monotonic_s is not None and task.ended_monotonic_s is not None:
            name = self._name(task.context.type)
            self._ran.observe((task.queue, name), task.ended_monotonic_s - task.begun_monotonic_s)

    def unknown(self, queue: str) -> None:
        """There is no handler for a task."""
        self._ran.observe((queue, UNKNOWN_TYPES), 0.0)

    def _name(self, task_type: str) -> str:
        if task_type in self._named:
            return task_type
        if len(self._named) >= MOST_TASK_TYPES:
            return OTHER_TYPES
        self._named.add(task_type)
        return task_type

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
