"""One pool's size: what it is up against, what is decided, and how that is carried out.

Up is one patch. Down goes through `headrace_operator.fleet`, a step per look. What is asked of Redis and of Kubernetes
is asked for what was seen: a worker is drained only if it has been idle since the moment its record named, and a
Deployment is changed only if nobody has changed it since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from headrace.model.errors import BackendError, UnknownQueue
from headrace.queue.queue import Queue

from ..fleet import DELETION_COST, FIRST_TO_GO, Member, Plan, going_unborn, members, plan
from ..kube import DEPLOYMENTS, PODS, ApiProblem, Kube
from ..load import QueueInView, Sibling, pool_figures, start_time_s, with_idle_times
from ..observation import PoolHistory
from ..resources import REVISION_LABEL, WorkerPoolResource
from ..scaling import Decision, decide
from ..store import Body, Store
from ..workers import pods_at_work
from .keeper import Keeper, Room

HOLD_S: Final = 30.0
"""For so long new workers of a Deployment that is made smaller are not let in, unless it is said again."""
_HOLD_AGAIN_S: Final = 15.0
_TRIES: Final = 3

_log = structlog.get_logger(__name__)


class InCare(Protocol):
    """A queue that the pool serves, and its keeper."""

    @property
    def queue(self) -> Queue: ...
    @property
    def keeper(self) -> Keeper: ...


@dataclass(frozen=True)
class Outcome:
    """What came of carrying out a decision."""

    change: int = 0
    """By how many pods the Deployment has just been changed."""
    is_unfinished: bool = False
    """Whether something has been begun of which the end is to be seen."""
    reaction_s: float | None = None
    """How long after a bell had been heard pods were added."""
    drains_refused: int = 0
    """Workers that looked idle and had a task after all."""


@dataclass(frozen=True)
class Hold:
    """Newcomers of a Deployment are not let in."""

    since_s: float
    until_s: float


@dataclass(frozen=True)
class Sight:
    """What one look has found, and what was decided on it."""

    decision: Decision
    current: Sequence[Member]
    """The pods of the revision that is scaled."""
    former: Mapping[str, Sequence[Member]]
    """Those of others, by revision."""
    unborn: frozenset[str]
    """The revisions of pods that are being deleted, and whose workers may yet begin."""
    felt_at_s: float
    """The oldest of the pulses that it is made of."""
    start_s: float


class Scaler:
    """One pool's, for as long as its leader leads."""

    def __init__(self, kube: Kube, store: Store, uid: str) -> None:
        self._kube = kube
        self._store = store
        self.uid = uid
        self._history = PoolHistory(time.monotonic())
        self._holds: dict[str, Hold] = {}
        """By Deployment."""
        self._departing: dict[str, frozenset[str]] = {}
        """By Deployment, the uids of the pods that are to go."""

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────

    def look(
        self,
        pool: WorkerPoolResource,
        cares: Sequence[InCare],
        siblings: Mapping[str, Sequence[Sibling]],
        pods: Iterable[Body],
        revision: str,
        told: int,
    ) -> Sight | None:
        """What is to be done; None unless every queue answers: nothing is decided on half of what is going on.

        ``siblings`` are the other pools of each queue, ``told`` is how many pods its Deployment has been told to have.
        """
        now_s = time.monotonic()
        queues = []
        for care in cares:
            pulse = care.keeper.pulse
            if pulse is None or care.keeper.problem is not None:
                return None
            name = care.queue.name
            queues.append(QueueInView(name, pulse, care.keeper.flow, siblings.get(name, ())))
        pods, work = list(pods), pods_at_work([(queue.name, queue.pulse) for queue in queues])
        found = members(pods, work)
        found = with_idle_times(found, {queue.name: queue.pulse for queue in queues}, self._history, now_s)
        by_revision: dict[str, list[Member]] = {revision: []}
        for pod in found:
            by_revision.setdefault(pod.body["metadata"]["labels"].get(REVISION_LABEL, ""), []).append(pod)
        current = by_revision.pop(revision)
        former = [pod for pods_of_one in by_revision.values() for pod in pods_of_one]
        figures = pool_figures(
            pool, queues, told=told, current=current, others=former, history=self._history, now_s=now_s
        )
        decision = decide(figures)
        self._history.needed(decision.need, now_s, is_flowing=decision.is_flowing)
        return Sight(
            decision=decision,
            current=current,
            former=by_revision,
            unborn=frozenset(pod["metadata"]["labels"].get(REVISION_LABEL, "") for pod in going_unborn(pods, work)),
            felt_at_s=min(care.keeper.felt_at_s for care in cares),
            start_s=start_time_s([pod.body for pod in found]),
        )

    def recent_need(self, pool: WorkerPoolResource) -> int:
        """The most that was needed lately."""
        return self._history.recent_need(pool.idle_seconds, 0, time.monotonic())

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────

    async def resize(self, found: Body, sight: Sight, cares: Sequence[InCare]) -> Outcome:
        """Bring the Deployment of the current revision to what was decided."""
        decision = sight.decision
        told = _told(found)
        is_automatic = decision.figures.fixed_replicas is None and told <= decision.figures.max_replicas
        planned = plan(
            sight.current,
            told=told,
            replicas=decision.replicas,
            taking_tasks=decision.taking_tasks,
            longest_idle_only_s=decision.figures.idle_seconds if is_automatic else 0.0,
        )
        return await self._carry_out(planned, found, sight.current, sight, cares, force=False)

    async def retire(self, found: Body, keep: int, sight: Sight, cares: Sequence[InCare]) -> bool:
        """Have the workers of a former revision finish what they have and go, all but so many; True if all are gone."""
        told = _told(found)
        pods = sight.former.get(found["metadata"]["labels"][REVISION_LABEL], ())
        if told == 0 and not pods:
            return not (found.get("status") or {}).get("replicas")
        planned = plan(pods, told=told, replicas=min(keep, told), taking_tasks=keep, force=True)
        await self._carry_out(planned, found, pods, sight, cares, force=True)
        return False

    async def let_work(self, found: Body, sight: Sight, cares: Sequence[InCare]) -> None:
        """Take back all that were asked to drain, and leave the number of pods as it is."""
        draining = tuple(pod for pod in sight.current if not pod.takes_tasks)
        planned = await self._but_for_those_going(Plan(take_back=draining), found, sight.current)
        await self._take_back(planned.take_back, cares)

    async def leave_room(self, room: int | None, sight: Sight, cares: Sequence[InCare], *, at_once: bool) -> None:
        """Say how much may come before this pool is to be looked at again; None: it need not be."""
        for care in cares:
            pulse = care.keeper.pulse
            # Each queue gets its part: rather a bell too early than one too late.
            tasks = None if room is None or pulse is None or pulse.paused else room // len(cares)
            said = Room(tasks, pulse.depth if pulse is not None else 0, sight.start_s)
            try:
                await care.keeper.leave_room(self.uid, said, at_once=at_once)
            except (BackendError, UnknownQueue):
                continue  # its keeper finds out by itself, and says so

    async def _carry_out(
        self,
        planned: Plan,
        found: Body,
        pods: Sequence[Member],
        sight: Sight,
        cares: Sequence[InCare],
        *,
        force: bool,
    ) -> Outcome:
        deployment, told = found["metadata"]["name"], _told(found)
        rung_at_s = [at_s for care in cares if (at_s := care.keeper.take_ring()) is not None]
        self._confirm(deployment, pods, told)
        planned = await self._but_for_those_going(planned, found, pods)
        await self._take_back(planned.take_back, cares)
        is_changed = False
        if planned.replicas is not None and planned.replicas > told:
            # A pod that is being deleted may start its worker all the same, for some seconds. Until it is gone
            # newcomers stay outside; those that are needed are taken back as soon as they are seen.
            if found["metadata"]["labels"][REVISION_LABEL] not in sight.unborn:
                await self._let_newcomers_in(deployment, cares)
            is_changed = await self._scale(found, planned.replicas, insist=True)
        reaction_s = time.monotonic() - min(rung_at_s) if is_changed and rung_at_s else None
        drains_refused = await self._drain(planned.drain, cares, force=force)
        for pod in planned.unmark:
            await self._annotate(pod, None)
        if planned.mark or planned.departing:
            await self._keep_newcomers_out(deployment, cares)
        for pod in planned.mark:
            await self._annotate(pod, FIRST_TO_GO)
        if planned.departing and planned.replicas is not None and self._has_held_since(deployment, sight.felt_at_s):
            is_changed = await self._scale(found, planned.replicas, insist=False)
            if is_changed:
                self._departing[deployment] = frozenset(pod.uid for pod in planned.departing)
        if planned.drain:
            for care in cares:
                care.keeper.ring()  # to see soon who has parked
        change = planned.replicas - told if is_changed and planned.replicas is not None else 0
        return Outcome(change, planned.is_unfinished, reaction_s, drains_refused)

    async def _but_for_those_going(self, planned: Plan, found: Body, pods: Sequence[Member]) -> Plan:
        """The plan, if it gives no work to pods that a ReplicaSet may be about to delete.

        A marked pod may have been chosen when the Deployment was told to have fewer, and be deleted a moment later. It
        stays if the ReplicaSet has seen no more pods than it shall have, and if it is still there after that.
        """
        if not planned.gives_back_marked or (_has_settled(found) and await self._are_there(found, pods)):
            return planned
        return planned.until_they_have_gone()

    async def _are_there(self, found: Body, pods: Sequence[Member]) -> bool:
        """Whether none of the marked pods is being deleted: asked anew, as the watch may be late."""
        metadata = found["metadata"]
        listed = await self._kube.list(
            PODS, metadata["namespace"], f"{REVISION_LABEL}={metadata['labels'][REVISION_LABEL]}"
        )
        staying = {pod["metadata"]["uid"] for pod in listed if not pod["metadata"].get("deletionTimestamp")}
        return all(pod.uid in staying for pod in pods if pod.is_marked)

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────

    async def _take_back(self, pods: Sequence[Member], cares: Sequence[InCare]) -> None:
        for care in cares:
            if workers := [row.worker for pod in pods for row in pod.work.in_queue(care.queue.name)]:
                await care.queue.undrain(workers)
                care.keeper.ring()
        if pods:
            _log.info("workers are taken back", pods=[pod.name for pod in pods])

    async def _drain(self, pods: Sequence[Member], cares: Sequence[InCare], *, force: bool) -> int:
        """Each in all of its queues, or in none; returns how many had a task after all."""
        refused: set[str] = set()
        for care in cares:
            rows = [(pod, row) for pod in pods for row in pod.work.in_queue(care.queue.name)]
            if not rows:
                continue
            answers = await care.queue.drain(
                [row.worker for _, row in rows],
                idle_since_s=None if force else [row.idle_since_s for _, row in rows],
                force=force,
            )
            refused |= {pod.name for (pod, _), answer in zip(rows, answers, strict=True) if answer != "draining"}
        if refused and not force:
            await self._take_back([pod for pod in pods if pod.name in refused], cares)
        if drained := [pod.name for pod in pods if pod.name not in refused]:
            _log.info("workers are asked to drain", pods=drained, force=force)
        return len(refused)

    async def _keep_newcomers_out(self, deployment: str, cares: Sequence[InCare]) -> None:
        now_s = time.monotonic()
        known = self._holds.get(deployment)
        if known is not None and known.until_s - now_s > _HOLD_AGAIN_S:
            return
        for care in cares:
            await care.queue.hold_newcomers(deployment, HOLD_S)
        since_s = known.since_s if known is not None and known.until_s > now_s else time.monotonic()
        self._holds[deployment] = Hold(since_s, now_s + HOLD_S)

    def _has_held_since(self, deployment: str, felt_at_s: float) -> bool:
        """Whether all who were let in have been seen: nobody is deleted then who could hold a task unseen."""
        known = self._holds.get(deployment)
        return known is not None and known.since_s < felt_at_s and time.monotonic() < known.until_s

    async def _let_newcomers_in(self, deployment: str, cares: Sequence[InCare]) -> None:
        if self._holds.pop(deployment, None) is not None:
            for care in cares:
                await care.queue.hold_newcomers(deployment, 0.0)

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────

    async def _annotate(self, pod: Member, deletion_cost: str | None) -> None:
        metadata = pod.body["metadata"]
        patch = {"metadata": {"annotations": {DELETION_COST: deletion_cost}, "uid": metadata["uid"]}}
        try:
            await self._kube.merge(PODS, metadata["namespace"], metadata["name"], patch)
        except ApiProblem as problem:
            if not (problem.is_missing or problem.is_conflict):  # it has gone meanwhile
                raise

    async def _scale(self, found: Body, replicas: int, *, insist: bool) -> bool:
        """Only if nobody has been quicker: what was decided on is what is changed.

        With ``insist`` a change that leaves the number of pods alone, such as of the status, does not count.
        """
        metadata = found["metadata"]
        namespace, name, told = metadata["namespace"], metadata["name"], _told(found)
        version = metadata["resourceVersion"]
        for _ in range(_TRIES):
            patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
            try:
                scaled = await self._kube.merge(DEPLOYMENTS, namespace, name, patch, "scale")
            except ApiProblem as problem:
                if not problem.is_conflict:
                    raise
                if not insist:
                    return False  # the change that came between is looked at next
                latest = await self._latest(found)
                if latest is None or _told(latest) != told:
                    return False
                version = latest["metadata"]["resourceVersion"]
                continue
            self._history.stepped(replicas - told, time.monotonic())
            self._remember(found, replicas, scaled)
            _log.info("scaled", namespace=namespace, deployment=name, before=told, replicas=replicas)
            return True
        return False

    async def _latest(self, found: Body) -> Body | None:
        """The Deployment as it is now. Asked for by a listing, to which there is a right anyway."""
        metadata = found["metadata"]
        listed = await self._kube.list(
            DEPLOYMENTS, metadata["namespace"], f"{REVISION_LABEL}={metadata['labels'][REVISION_LABEL]}"
        )
        return next((each for each in listed if each["metadata"]["uid"] == metadata["uid"]), None)

    def _remember(self, found: Body, replicas: int, scaled: Mapping[str, Any]) -> None:
        """The next look may come before the watch has told of our own change."""
        metadata = {
            **found["metadata"],
            "resourceVersion": scaled["metadata"]["resourceVersion"],
            "generation": found["metadata"]["generation"] + 1,
        }
        self._store.put_own(
            "Deployment", {**found, "metadata": metadata, "spec": {**found["spec"], "replicas": replicas}}
        )

    def _confirm(self, deployment: str, pods: Sequence[Member], told: int) -> None:
        """See who has gone, by uid."""
        asked = self._departing.get(deployment)
        if asked is None:
            return
        still_there = asked & {pod.uid for pod in pods}
        if still_there and len(pods) > told:
            return
        del self._departing[deployment]
        if still_there:
            # One that had not begun was preferred, or somebody has deleted one. Those that stay are looked at anew.
            _log.warning("other pods went than were chosen", deployment=deployment, stayed=len(still_there))
        else:
            _log.info("the chosen pods are gone", deployment=deployment, pods=len(asked))


def _told(found: Body) -> int:
    return int(found["spec"].get("replicas", 1))


def _has_settled(found: Body) -> bool:
    """Whether Kubernetes has dealt with the number that this Deployment was told last."""
    status = found.get("status") or {}
    has_seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
    return bool(has_seen and status.get("replicas", 0) <= _told(found))
