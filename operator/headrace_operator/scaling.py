"""How many workers a pool shall have: figures in, a decision out.

Nothing here looks at a clock, a queue or a cluster, so a decision can be made again from its own record.

**The formula.** A task of a level takes ``S`` seconds (measured) and shall begin within ``T`` seconds (its target). In
``T`` seconds one slot can begin ``1 + T/S`` such tasks, because the last of them only has to begin. So a task that
waits needs ``S / (S + T)`` of a slot: next to nothing where tasks are short, close to one where they take much longer
than they may wait, and never more. (A slot begins its tasks ``S`` seconds apart. Where ``T`` is no multiple of that,
the last of a burst may begin by less than ``S`` too late; in return a steady flow gets just what it fills.) The same
goes for tasks that execute, which keep their slot for another while, and for those that steadily arrive, of which
``T`` seconds' worth is expected::

    slots = sum over queues and levels of (waiting x S / (S + T))
          + sum over queues of ((executing + arriving_per_s x T) x S / (S + T))
    need  = ceil(slots / concurrency)

With 100 tasks of 10 s that shall begin within 30 s: 100 x 10 / 40 = 25 slots; with a concurrency of 5, 5 workers. Each
of the 25 slots begins a task at 0, 10, 20 and 30 s. While they run, the sum of what waits and what executes only falls:
a burst is answered once. With 10 tasks per second of 2 s each, nothing waiting and 20 executing, within 30 s:
(20 + 10 x 30) x 2 / 32 = 20 slots: just what the flow keeps busy.

While nothing has been measured, a worker is expected to deal with ``backlog_per_worker`` tasks, waiting or executing.
How long tasks have been at work without any of them ending is a lower bound of what they take, and is used as such.

**Up** at once, to the number needed. **Down** only by workers that have had nothing to do for ``idle_seconds``. Who is
not needed is set aside, so that it has nothing to do: soon after a burst, and late while there is a flow. See
`Decision.replicas` and `Decision.spare`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable

import msgspec

_A_LITTLE: float = 1e-9
"""Sums of fractions that are meant to be whole are not always; a whole worker must not hang on that."""


class LevelLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What waits on one level, as far as it is for this pool."""

    level: str
    waiting: float
    """Tasks that could begin now, or when a new worker could be there: this pool's share of them."""
    service_s: float | None = None
    """How long such tasks take; None while nothing is known of that. An API server may drop what is null."""
    target_s: float


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One queue that the pool serves."""

    queue: str
    levels: tuple[LevelLoad, ...]
    executing: float = 0.0
    """Slots of this pool's workers in which its tasks run."""
    arriving_per_s: float = 0.0
    """What steadily comes; a burst is no flow. This pool's share of it."""
    service_s: float | None = None
    """Over all levels."""
    target_s: float
    """The pool's own, for what is not known by level."""


class StepLimit(msgspec.Struct, frozen=True):
    """At most so many pods within so many seconds."""

    pods: int
    seconds: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision depends on."""

    queues: tuple[QueueLoad, ...]
    replicas: int
    """How many pods there shall be so far, the pending ones included: they count as coming."""
    busy: int = 0
    """Workers that hold a task."""
    idle_s: tuple[float, ...] = ()
    """For how long each of the others has held none."""
    concurrency: int
    min_replicas: int
    max_replicas: int
    idle_seconds: float
    backlog_per_worker: float
    fixed_replicas: int | None = None
    """As somebody wants it: nothing is computed then."""
    recent_need: int = 0
    """What was needed lately (`PoolHistory.recent_need`); until enough time has been seen, all there is."""
    up_limit: StepLimit | None = None
    down_limit: StepLimit | None = None
    added: int = 0
    """Pods that were added within the seconds of ``up_limit``."""
    removed: int = 0
    """The same for ``down_limit``."""


class Reason(enum.StrEnum):
    """Why a number of pods was chosen."""

    FIXED = "FixedSize"
    BACKLOG = "Backlog"
    IDLE = "Idle"
    STEADY = "Steady"
    AT_MAXIMUM = "AtMaximum"
    AT_MINIMUM = "AtMinimum"
    STEP_LIMITED = "StepLimited"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods there shall be, and why."""

    replicas: int
    """What there shall be now. Fewer than there are only by workers that have been idle for long enough, or, for a size
    that somebody has fixed or when there are more than the maximum, by workers that are idle."""
    need: int
    """What the load asks for, whatever the bounds are."""
    slots: float
    spare: int
    """How many of the workers have not been needed lately. They are set aside as soon as they hold nothing, so that the
    work gathers on the others and these can go; what is needed again is taken back at once."""
    room: int | None
    """How many more tasks may come to wait before another worker is needed, be it a new one or one that was set aside;
    None: no number of tasks changes anything."""
    reason: Reason
    message: str
    figures: Figures

    @property
    def taking_tasks(self) -> int:
        """How many of the replicas shall take tasks: all that were not set aside."""
        return _taking_tasks(self.figures, self.replicas, self.spare)

    @property
    def is_flowing(self) -> bool:
        """Whether anything comes steadily."""
        return any(queue.arriving_per_s > 0 for queue in self.figures.queues)


def decide(figures: Figures) -> Decision:
    """The decision for these figures; the same ones always lead to the same one."""
    slots = math.fsum(_slots_of(queue, figures) for queue in figures.queues)
    need = math.ceil(slots / figures.concurrency - _A_LITTLE)
    if figures.fixed_replicas is not None:
        return _fixed(figures, slots, need, figures.fixed_replicas)
    replicas, reason, message = _bounded(figures, need)
    spare = max(0, figures.replicas - max(need, figures.recent_need, figures.min_replicas))
    taking_tasks = _taking_tasks(figures, replicas, spare)
    is_held = reason in (Reason.AT_MAXIMUM, Reason.STEP_LIMITED) and taking_tasks == replicas
    return Decision(
        replicas=replicas,
        need=need,
        slots=slots,
        spare=spare,
        room=None if is_held else _room(figures, slots, taking_tasks),
        reason=reason,
        message=message,
        figures=figures,
    )


def _taking_tasks(figures: Figures, replicas: int, spare: int) -> int:
    return replicas if replicas > figures.replicas else min(replicas, figures.replicas - spare)


def slot_share(service_s: float, target_s: float) -> float:
    """How much of a slot a task needs that takes so long and shall begin within that time."""
    return service_s / (service_s + target_s)


def slots_per_task(level: LevelLoad, figures: Figures) -> float:
    """How much of a slot a waiting task of this level needs."""
    if level.service_s is None:
        return min(1.0, figures.concurrency / figures.backlog_per_worker)
    return slot_share(level.service_s, level.target_s)


def slots_per_running_task(queue: QueueLoad, figures: Figures) -> float:
    """The same for a task that executes, or is about to come."""
    if queue.service_s is None:
        return min(1.0, figures.concurrency / figures.backlog_per_worker)
    return slot_share(queue.service_s, queue.target_s)


def _slots_of(queue: QueueLoad, figures: Figures) -> float:
    waiting = math.fsum(level.waiting * slots_per_task(level, figures) for level in queue.levels)
    # What arrives cannot be converted to slots while nobody knows how long it takes.
    expected = 0.0 if queue.service_s is None else queue.arriving_per_s * queue.target_s
    return waiting + (queue.executing + expected) * slots_per_running_task(queue, figures)


def _bounded(figures: Figures, need: int) -> tuple[int, Reason, str]:
    """The number within the bounds, and why it is that one."""
    least, most, current = figures.min_replicas, figures.max_replicas, figures.replicas
    if current > most:
        # A bound was lowered. Nobody waits for idle_seconds then, but who is busy stays.
        # Those of a former revision may be busy as well; nobody is added for them.
        stay = min(current, max(most, figures.busy))
        return stay, Reason.AT_MAXIMUM, f"There are {current} workers, and maxReplicas is {most}"
    wanted = max(need, least)
    if wanted > current:
        return _more(figures, need, wanted)
    may_go = sum(idle_s >= figures.idle_seconds for idle_s in figures.idle_s)
    fewer = max(wanted, figures.busy, current - may_go)
    if fewer >= current:
        if need < least == current:
            return current, Reason.AT_MINIMUM, f"{need} workers are needed, and minReplicas is {least}"
        return current, Reason.STEADY, _steady(figures, need)
    if figures.down_limit is not None:
        allowed = max(fewer, current - max(0, figures.down_limit.pods - figures.removed))
        if allowed > fewer:
            message = f"{current - fewer} workers could go, and scaleDownLimit allows {current - allowed} of them now"
            return allowed, Reason.STEP_LIMITED, message
    idle = f"{current - fewer} of {current} workers have had nothing to do for {figures.idle_seconds:g} s"
    return fewer, Reason.IDLE, f"{idle}, and {need} are needed"


def _more(figures: Figures, need: int, wanted: int) -> tuple[int, Reason, str]:
    current, most = figures.replicas, figures.max_replicas
    replicas = min(wanted, most)
    if figures.up_limit is not None:
        allowed = min(replicas, current + max(0, figures.up_limit.pods - figures.added))
        if allowed < replicas:
            message = f"{wanted} workers are needed, and scaleUpLimit allows {allowed} for now"
            return allowed, Reason.STEP_LIMITED, message
    if need > most:
        return replicas, Reason.AT_MAXIMUM, f"{need} workers are needed, and maxReplicas is {most}"
    if need < figures.min_replicas:
        return replicas, Reason.AT_MINIMUM, f"{need} workers are needed, and minReplicas is {figures.min_replicas}"
    return replicas, Reason.BACKLOG, f"{need} workers are needed: {told_load(figures)}"


def _steady(figures: Figures, need: int) -> str:
    if need == figures.replicas:
        return f"{need} workers are needed: {told_load(figures)}"
    return f"{need} workers are needed; the others have not been idle for {figures.idle_seconds:g} s yet"


def _fixed(figures: Figures, slots: float, need: int, fixed: int) -> Decision:
    replicas = min(max(fixed, figures.min_replicas), figures.max_replicas)
    reason, message = Reason.FIXED, f"spec.replicas is {fixed}; remove it to have the number follow the load"
    if fixed > replicas:
        reason, message = Reason.AT_MAXIMUM, f"spec.replicas is {fixed}, and maxReplicas is {figures.max_replicas}"
    elif fixed < replicas:
        reason, message = Reason.AT_MINIMUM, f"spec.replicas is {fixed}, and minReplicas is {figures.min_replicas}"
    return Decision(
        replicas=replicas,
        need=need,
        slots=slots,
        spare=0,
        room=None,
        reason=reason,
        message=message,
        figures=figures,
    )


def _room(figures: Figures, slots: float, taking_tasks: int) -> int | None:
    """Counted for the level that asks for the most. Pods that are to go or were set aside are not counted on."""
    if taking_tasks >= figures.max_replicas:
        return None
    dearest = max((slots_per_task(level, figures) for queue in figures.queues for level in queue.levels), default=0.0)
    if dearest <= 0:
        return None
    return max(0, math.floor((taking_tasks * figures.concurrency - slots) / dearest + _A_LITTLE))


def told_load(figures: Figures) -> str:
    """The load in a few words."""
    waiting = _sum(level.waiting for queue in figures.queues for level in queue.levels)
    executing = _sum(queue.executing for queue in figures.queues)
    arriving = _sum(queue.arriving_per_s for queue in figures.queues)
    flow = f", {arriving:.3g} arrive per second" if arriving else ""
    return f"{waiting:.4g} tasks wait, {executing:.4g} execute{flow}"


def _sum(values: Iterable[float]) -> float:
    return math.fsum(values)
