"""A pool's pods, and what is to be done with them so that there are as many as there shall be.

Pure: what was found goes in, what to do comes out. Nothing here waits for anything: whatever takes time (a worker that
parks, a pod that turns unready, one that goes) is found to have happened, or not, at the next look. So it does not
matter who looks next: a successor goes on where a leader was cut off.

A worker leaves in four steps, each of which can still be undone until the last one:

1. It is asked to drain, which Redis grants only if it holds nothing. From then on it gets no task.
2. It confirms that it is parked, and its pod turns unready.
3. Its pod gets the lowest deletion cost.
4. The Deployment is told to have one pod less, if nobody has changed it meanwhile, and if the pods that its ReplicaSet
   would choose are parked, every one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .workers import PodWork

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO: Final = "-1000"

_PHASES: Final = ("Pending", "Unknown", "Running")
_NO_WORK: Final = PodWork()


@dataclass(frozen=True)
class Member:
    """One pod of a pool that is not about to go."""

    body: Mapping[str, Any]
    work: PodWork
    idle_s: float = 0.0
    """For how long it has had nothing to do; 0 while it has."""

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def deletion_cost(self) -> int:
        text = (self.body["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
        try:
            return int(text)
        except ValueError:
            return 0  # as the ReplicaSet has it

    @property
    def is_ready(self) -> bool:
        return is_ready(self.body)

    @property
    def never_began(self) -> bool:
        """It has no worker and is not ready: it cannot start, or has only just been made."""
        return not self.work.is_known and not self.is_ready

    @property
    def may_be_deleted(self) -> bool:
        """It holds nothing, and will not."""
        return self.work.is_parked or self.never_began

    @property
    def is_marked(self) -> bool:
        """It has been chosen to go, and perhaps its ReplicaSet has begun to delete it."""
        return self.deletion_cost < 0

    @property
    def takes_tasks(self) -> bool:
        """It does, or will when it has started."""
        return not self.work.is_draining


@dataclass(frozen=True)
class Plan:
    """What to do with the pods of one Deployment."""

    take_back: tuple[Member, ...] = ()
    """Draining ones that shall take tasks again."""
    drain: tuple[Member, ...] = ()
    mark: tuple[Member, ...] = ()
    """Parked ones whose pods get the lowest deletion cost."""
    unmark: tuple[Member, ...] = ()
    replicas: int | None = None
    """What the Deployment shall be told; None: nothing new."""
    departing: tuple[Member, ...] = ()
    """Who goes if it is told that."""
    are_going: bool = False
    """Pods have been told to go, and which ones is not seen yet."""

    @property
    def is_unfinished(self) -> bool:
        """Whether something has been begun of which the end is to be seen."""
        return bool(self.drain or self.mark or self.departing or self.are_going)

    @property
    def gives_back_marked(self) -> bool:
        """Whether pods that were chosen to go shall stay after all."""
        return any(pod.is_marked for pod in (*self.take_back, *self.unmark))

    def until_they_have_gone(self) -> Plan:
        """What can be done of it while it is not seen yet whether those that were chosen to go are being deleted."""
        return Plan(take_back=tuple(pod for pod in self.take_back if not pod.is_marked), are_going=True)


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def members(pods: Iterable[Mapping[str, Any]], work: Mapping[str, PodWork]) -> list[Member]:
    """The pods that are there to stay, with what their workers do."""
    return [
        Member(pod, work.get(pod["metadata"]["name"], _NO_WORK))
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


def going_unborn(pods: Iterable[Mapping[str, Any]], work: Mapping[str, PodWork]) -> Iterator[Mapping[str, Any]]:
    """The pods that are being deleted and have no worker that is known: it may not have begun yet."""
    for pod in pods:
        has_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if pod["metadata"].get("deletionTimestamp") and not has_ended and pod["metadata"]["name"] not in work:
            yield pod


def plan(
    pods: Sequence[Member],
    *,
    told: int,
    replicas: int,
    taking_tasks: int,
    longest_idle_only_s: float = 0.0,
    force: bool = False,
) -> Plan:
    """What to do so that there are ``replicas`` pods, of which ``taking_tasks`` take tasks.

    ``told``: how many the Deployment has been told to have. Only those go that have been idle for
    ``longest_idle_only_s``. With ``force`` busy ones are asked to drain as well: they finish what they have.
    """
    active = [pod for pod in pods if pod.takes_tasks]
    draining = [pod for pod in pods if not pod.takes_tasks]
    if len(pods) > told:
        # Pods are going, and which ones is not seen yet. If the Deployment were told to have more now, it could not be
        # seen any more: one that is being deleted would look like one that stays.
        return Plan(are_going=True)
    missing = taking_tasks - len(active)
    if missing > 0:
        # Those first that have not been chosen to go yet, and then those that worked last.
        back = sorted(draining, key=lambda pod: (pod.is_marked, pod.idle_s))[:missing]
        draining = [pod for pod in draining if pod not in back]
    else:
        back = []
    too_many = len(active) - taking_tasks
    drain = _to_drain(active, too_many, force=force) if too_many > 0 else []
    leaving = [pod for pod in (*draining, *active) if pod.may_be_deleted and pod.idle_s >= longest_idle_only_s]
    leaving = sorted(leaving, key=lambda pod: (pod.deletion_cost, -pod.idle_s))[: max(0, told - replicas)]
    marked = [pod for pod in leaving if pod.deletion_cost == int(FIRST_TO_GO)]
    departing = _safe_to_remove(pods, marked)
    target = replicas if replicas > told else told - len(departing)
    return Plan(
        take_back=tuple(back),
        drain=tuple(pod for pod in drain if pod.work.is_known),
        mark=tuple(pod for pod in leaving if pod not in marked),
        unmark=tuple(pod for pod in pods if pod.is_marked and pod not in leaving),
        replicas=None if target == told else target,
        departing=tuple(departing),
    )


def _to_drain(active: Sequence[Member], too_many: int, *, force: bool) -> list[Member]:
    """Who has been idle the longest; those that are busy only by force, the least loaded first."""
    idle = sorted((pod for pod in active if pod.work.is_idle), key=lambda pod: -pod.idle_s)
    # A pod without a worker counts as one that does not take tasks, as long as it stays so.
    not_begun = [pod for pod in active if not pod.work.is_known]
    chosen = [*not_begun, *idle][:too_many]
    if force and len(chosen) < too_many:
        busy = sorted(
            (pod for pod in active if pod.work.is_busy), key=lambda pod: sum(row.load for _, row in pod.work.rows)
        )
        chosen += busy[: too_many - len(chosen)]
    return chosen


def _safe_to_remove(pods: Sequence[Member], marked: Sequence[Member]) -> list[Member]:
    """As many of the marked ones as can be removed without the ReplicaSet choosing any other that works.

    It chooses by what it knows at that moment. What it looks at first is known here as well; where two are alike, it
    may choose either.
    """
    for number in range(len(marked), 0, -1):
        ranked = sorted(pods, key=_rank)
        last = _rank(ranked[number - 1])
        if all(pod.may_be_deleted for pod in ranked if _rank(pod) <= last):
            return list(marked[:number])
    return []


def _rank(pod: Member) -> tuple[bool, int, bool, int]:
    """In the order in which a ReplicaSet removes pods: not scheduled, not running, not ready, lowest cost first."""
    phase = (pod.body.get("status") or {}).get("phase", "Pending")
    is_scheduled = bool((pod.body.get("spec") or {}).get("nodeName"))
    return is_scheduled, _PHASES.index(phase) if phase in _PHASES else 0, pod.is_ready, pod.deletion_cost
