"""What a pool is up against: from the pulses of its queues and the state of its pods to the figures of a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from headrace.model.figures import Pulse

from .fleet import Member
from .observation import Flow, PoolHistory
from .resources import WorkerPoolResource
from .scaling import Figures, LevelLoad, QueueLoad, slot_share

DELAYED: Final = "(delayed)"
"""In place of a level's name: delayed tasks that are due when a new worker could be there."""
USUAL_START_S: Final = 3.0
LONGEST_START_S: Final = 300.0


@dataclass(frozen=True)
class Sibling:
    """A pool that serves the same queue; the pool itself is one, too."""

    weight: float
    capabilities: frozenset[str]

    def covers(self, capset: str) -> bool:
        return all(capability in self.capabilities for capability in capset.split(",") if capability)


@dataclass(frozen=True)
class QueueInView:
    """A queue, as one look has found it."""

    name: str
    pulse: Pulse
    flow: Flow
    siblings: Sequence[Sibling]
    """The pools that serve it, other than this one."""


def sibling(body: Mapping[str, Any]) -> Sibling:
    """From a manifest that may be of any quality: whose share is counted must not depend on its other mistakes."""
    spec = body.get("spec") or {}
    weight, capabilities = spec.get("weight"), spec.get("capabilities")
    is_weight = isinstance(weight, (int, float)) and not isinstance(weight, bool) and weight > 0
    named = capabilities if isinstance(capabilities, list) else []
    return Sibling(float(weight) if is_weight else 1.0, frozenset(str(each) for each in named))  # type: ignore[arg-type]


def pool_figures(
    pool: WorkerPoolResource,
    queues: Sequence[QueueInView],
    *,
    told: int,
    current: Sequence[Member],
    others: Sequence[Member],
    history: PoolHistory,
    now_s: float,
) -> Figures:
    """The figures of this moment. ``current`` are the pods of the revision that is scaled, ``others`` those that go."""
    own = Sibling(pool.weight, frozenset(pool.capabilities))
    return Figures(
        queues=tuple(_load(pool, own, queue, (*current, *others), now_s) for queue in queues),
        replicas=told,
        busy=sum(pod.work.is_busy for pod in current),
        idle_s=tuple(sorted(round(pod.idle_s, 1) for pod in current if pod.idle_s > 0)),
        concurrency=pool.concurrency,
        min_replicas=pool.min_replicas,
        max_replicas=pool.max_replicas,
        idle_seconds=pool.idle_seconds,
        backlog_per_worker=pool.backlog_per_worker,
        fixed_replicas=pool.replicas,
        recent_need=history.recent_need(pool.idle_seconds, told, now_s),
        up_limit=pool.scale_up_limit,
        down_limit=pool.scale_down_limit,
        added=0 if pool.scale_up_limit is None else history.added(pool.scale_up_limit.seconds, now_s),
        removed=0 if pool.scale_down_limit is None else history.removed(pool.scale_down_limit.seconds, now_s),
    )


def backlog(figures: Figures) -> float:
    """How many tasks wait for the pool now: its share of them."""
    return sum(level.waiting for queue in figures.queues for level in queue.levels if level.level != DELAYED)


def _load(
    pool: WorkerPoolResource, own: Sibling, queue: QueueInView, pods: Sequence[Member], now_s: float
) -> QueueLoad:
    pulse, target_s = queue.pulse, pool.target_drain_seconds
    measured = {level: seconds for level, _, seconds in pulse.service}
    runs = sum(count for _, count, _ in pulse.service)
    mean_s = sum(count * seconds for _, count, seconds in pulse.service) / runs if runs else None
    standstill_s = queue.flow.standstill_s(now_s)

    def service_s(seconds: float | None, within_s: float) -> float | None:
        """What is measured; or what is known at least, as soon as that says more than the rule for the unknown."""
        if seconds is not None:
            return max(seconds, standstill_s)
        expected_share = pool.concurrency / pool.backlog_per_worker
        return standstill_s if slot_share(standstill_s, within_s) > expected_share else None

    levels: list[LevelLoad] = []
    # A queue that hands out nothing needs no workers, whatever waits there.
    if not pulse.paused:
        for name, _, _ in pulse.levels:
            waiting = sum(
                depth * _share(own, queue.siblings, capset)
                for level, capset, depth in pulse.waiting
                if level == name and own.covers(capset)
            )
            within_s = pool.level_targets_s.get(name, target_s)
            seconds = service_s(measured.get(name, mean_s), within_s)
            levels.append(LevelLoad(level=name, waiting=waiting, service_s=seconds, target_s=within_s))
        if pulse.due_soon:
            waiting = pulse.due_soon * _share(own, queue.siblings, "")
            seconds = service_s(mean_s, target_s)
            levels.append(LevelLoad(level=DELAYED, waiting=waiting, service_s=seconds, target_s=target_s))
    arriving = 0.0 if pulse.paused else queue.flow.arriving_per_s(now_s) * _share(own, queue.siblings, "")
    return QueueLoad(
        queue=queue.name,
        levels=tuple(levels),
        executing=sum(pod.work.executing_in(queue.name) for pod in pods),
        arriving_per_s=arriving,
        service_s=service_s(mean_s, target_s),
        target_s=target_s,
    )


def _share(own: Sibling, siblings: Sequence[Sibling], capset: str) -> float:
    """This pool's part of what requires these capabilities, among all that have them."""
    others = sum(each.weight for each in siblings if each.covers(capset))
    return own.weight / (own.weight + others)


def with_idle_times(
    pods: Sequence[Member], pulses: Mapping[str, Pulse], history: PoolHistory, now_s: float
) -> list[Member]:
    """The same pods, with for how long each of them has had nothing to do."""
    found: list[Member] = []
    seen: set[str] = set()
    for pod in pods:
        idle_s: list[float] = []
        if pod.never_began:
            seen.add(pod.uid)
            idle_s.append(history.idle_s(pod.uid, 0.0, 0.0, now_s))
        elif not pod.work.is_busy:
            for queue, worker in pod.work.rows:
                seen.add(key := f"{queue} {worker.worker}")
                idle_by_redis_s = pulses[queue].at_s - worker.idle_since_s
                idle_s.append(history.idle_s(key, worker.idle_since_s, idle_by_redis_s, now_s))
        found.append(replace(pod, idle_s=min(idle_s, default=0.0)))
    history.forget_all_but(seen)
    return found


def start_time_s(pods: Sequence[Mapping[str, Any]]) -> float:
    """How long it takes until a new pod's worker runs: the longest of those that are there, in whole seconds."""
    seconds = [took for pod in pods if (took := _started_after_s(pod)) is not None]
    return min(max(seconds, default=USUAL_START_S - 1) + 1, LONGEST_START_S)


def _started_after_s(pod: Mapping[str, Any]) -> float | None:
    containers = (pod.get("status") or {}).get("containerStatuses") or [{}]
    if containers[0].get("restartCount"):
        return None  # that is when it was started again
    running = ((containers[0].get("state") or {}).get("running") or {}).get("startedAt")
    made = pod["metadata"].get("creationTimestamp")
    if not running or not made:
        return None
    return max(0.0, (datetime.fromisoformat(running) - datetime.fromisoformat(made)).total_seconds())
