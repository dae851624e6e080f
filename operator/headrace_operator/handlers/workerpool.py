"""WorkerPool: a Deployment for each revision of its template, as many pods as are needed, and none lost on the way.

A changed template starts new workers beside the old ones. As those become ready, as many of the old ones are asked to
take on nothing more; each goes when it has finished what it has. How many there shall be is the `Scaler`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from headrace.model.errors import HeadraceError

from ..controllers.scaler import Outcome, Scaler, Sight
from ..fleet import is_ready
from ..kube import DEPLOYMENTS, SCALER, SERVICE_ACCOUNTS, ApiProblem, Kube
from ..load import Sibling, backlog, sibling
from ..manifests import deployment, revision_of, worker_template
from ..metrics.pools import PoolMetrics
from ..reading import InvalidResource
from ..reporting import Reporter
from ..resources import REVISION_LABEL, TaskQueueResource, WorkerPoolResource, common_backend
from ..scaling import Decision, Reason
from ..status import (
    Condition,
    Problem,
    condition,
    decision_status,
    merge_conditions,
    pod_problem,
    workerpool_status,
)
from ..store import Body, Store
from .refusal import Refusal
from .taskqueue import Care, TaskQueues

RESYNC_S: Final = 60.0
_BROKEN_RESYNC_S: Final = 5.0
EVALUATE_S: Final = 2.0
"""A pool that has or needs workers is looked at as often as this, whatever happens."""
_SOON_S: Final = 0.5
ALLOW_WORKERS: Final = "headrace.dev/allow-workers"

_log = structlog.get_logger(__name__)


class WorkerPools:
    """The WorkerPools of this leader's term."""

    def __init__(
        self, kube: Kube, store: Store, reporter: Reporter, taskqueues: TaskQueues, metrics: PoolMetrics
    ) -> None:
        self._kube = kube
        self._store = store
        self._reporter = reporter
        self._taskqueues = taskqueues
        self._metrics = metrics
        self._scalers: dict[tuple[str, str], Scaler] = {}
        self._applied: dict[str, tuple[bytes, int]] = {}
        """What was last applied to a Deployment, by its uid, and the generation it had then."""

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Make the WorkerPool true; returns when to look again."""
        body = self._store.get("WorkerPool", namespace, name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            self._forget(namespace, name)
            return None  # its Deployments go with it, and their pods drain as they are told to end
        try:
            pool = WorkerPoolResource.from_body(body)
        except InvalidResource as error:
            await self._report_refusal(body, Refusal("InvalidSpec", str(error)))
            return RESYNC_S
        if not all(
            self._taskqueues.has_looked_at(namespace, queue)
            for queue in pool.queues
            if self._store.get("TaskQueue", namespace, queue) is not None
        ):
            return _SOON_S
        try:
            cares = self._cares(pool)
            queues = [care.resource for care in cares]
            _check_backend(pool, queues)
            await self._check_service_account(pool)
            return await self._make_true(body, pool, cares, queues)
        except Refusal as refusal:
            await self._report_refusal(body, refusal)
            return _BROKEN_RESYNC_S

    def _scaler(self, pool: WorkerPoolResource) -> Scaler:
        place = (pool.ref.namespace, pool.ref.name)
        known = self._scalers.get(place)
        if known is None or known.uid != pool.ref.uid:
            self._forget(*place)
            known = self._scalers[place] = Scaler(self._kube, self._store, pool.ref.uid)
        return known

    def _forget(self, namespace: str, name: str) -> None:
        scaler = self._scalers.pop((namespace, name), None)
        self._metrics.forget(namespace, name)
        if scaler is not None:
            for care in self._taskqueues.cares(namespace):
                care.keeper.forget_pool(scaler.uid)

    # ── what it stands on ────────────────────────────────────────────────────────────────────────────

    def _cares(self, pool: WorkerPoolResource) -> list[Care]:
        cares = []
        for index, name in enumerate(pool.queues):
            if self._store.get("TaskQueue", pool.ref.namespace, name) is None:
                raise Refusal(
                    "QueueMissing",
                    f"spec.queues[{index}]: TaskQueue {name} does not exist in namespace {pool.ref.namespace}; "
                    "create it, or correct the name",
                )
            care = self._taskqueues.care(pool.ref.namespace, name)
            if care is None:
                raise Refusal(
                    "QueueNotReady",
                    f"spec.queues[{index}]: TaskQueue {name} is not ready; see kubectl describe taskqueue {name}",
                )
            cares.append(care)
        return cares

    async def _check_service_account(self, pool: WorkerPoolResource) -> None:
        name = pool.template.get("serviceAccountName")
        if name is None:
            return
        account = await self._kube.find(SERVICE_ACCOUNTS, pool.ref.namespace, name)
        field = "spec.template.serviceAccountName"
        if account is None:
            raise Refusal("ServiceAccountMissing", f"{field}: ServiceAccount {name} does not exist; create it")
        if (account["metadata"].get("annotations") or {}).get(ALLOW_WORKERS) != "true":
            # Whoever may create a pool must not thereby get the token of any account in the namespace.
            raise Refusal(
                "ServiceAccountNotAllowed",
                f"{field}: ServiceAccount {name} is not for workers; whoever owns it can allow it with "
                f"kubectl annotate serviceaccount {name} {ALLOW_WORKERS}=true",
            )

    # ── making it true ───────────────────────────────────────────────────────────────────────────────

    async def _make_true(
        self, body: Body, pool: WorkerPoolResource, cares: Sequence[Care], queues: Sequence[TaskQueueResource]
    ) -> float:
        template = worker_template(pool, queues)
        revision = revision_of(template)
        deployments = self._own_deployments(pool)
        scaler = self._scaler(pool)
        current = deployments.get(revision)
        told = 0 if current is None else int(current["spec"].get("replicas", 1))
        pods = self._pods(pool.ref.namespace, pool.ref.name)
        sight = scaler.look(pool, cares, self._siblings(pool, cares), pods, revision, told)

        if current is None:
            start = _first_size(pool, sight, scaler.recent_need(pool) if deployments else 0)
            start = 0 if pool.paused and deployments else start
            current = await self._apply(pool, deployment(pool, template, replicas=start))
            deployments[revision] = current
            sight = scaler.look(pool, cares, self._siblings(pool, cares), pods, revision, start)
        elif self._is_outdated(current, manifest := deployment(pool, template)):
            current = deployments[revision] = await self._apply(pool, manifest)
        outcome = Outcome()
        if sight is not None:
            try:
                outcome = await self._scale(body, pool, scaler, sight, current, deployments, cares)
            except HeadraceError as error:
                raise Refusal("BackendUnreachable", f"workers cannot be told to drain: {error}") from error
        await self._report(body, pool, revision, sight)
        if outcome.is_unfinished:
            return _SOON_S
        is_at_rest = pool.paused or (sight is not None and not pods and not sight.decision.replicas)
        return RESYNC_S if is_at_rest else EVALUATE_S

    async def _scale(
        self,
        body: Body,
        pool: WorkerPoolResource,
        scaler: Scaler,
        sight: Sight,
        current: Body,
        deployments: dict[str, Body],
        cares: Sequence[Care],
    ) -> Outcome:
        if pool.paused:
            await scaler.let_work(current, sight, cares)
            await scaler.leave_room(None, sight, cares, at_once=False)
            return Outcome()
        outcome = await scaler.resize(current, sight, cares)
        self._metrics.refused(pool.ref.namespace, pool.ref.name, outcome.drains_refused)
        # A queue that this pool does not serve any more need not ring for it.
        for care in self._taskqueues.cares(pool.ref.namespace):
            if care not in cares:
                care.keeper.forget_pool(pool.ref.uid)
        await scaler.leave_room(sight.decision.room, sight, cares, at_once=outcome.change > 0)
        if outcome.change:
            self._changed_by_us(current)
            await self._tell(body, sight.decision, outcome)
        await self._retire(scaler, sight, current, deployments, cares)
        return outcome

    async def _tell(self, body: Body, decision: Decision, outcome: Outcome) -> None:
        before = decision.figures.replicas
        metadata = body["metadata"]
        _log.info(
            "decision",
            namespace=metadata["namespace"],
            name=metadata["name"],
            before=before,
            told=before + outcome.change,
            replicas=decision.replicas,
            need=decision.need,
            reason=decision.reason.value,
            message=decision.message,
            reaction_s=outcome.reaction_s,
            figures=msgspec.to_builtins(decision.figures),
        )
        self._metrics.decided(metadata["namespace"], metadata["name"], decision.reason.value, outcome.reaction_s)
        what = "ScaledUp" if outcome.change > 0 else "ScaledDown"
        await self._reporter.say(body, what, f"From {before} to {before + outcome.change} workers. {decision.message}")

    async def _retire(
        self,
        scaler: Scaler,
        sight: Sight,
        current: Body,
        deployments: dict[str, Body],
        cares: Sequence[Care],
    ) -> None:
        """Let workers of former revisions go, one for each new one that is ready."""
        taking_over = sum(pod.is_ready or pod.work.is_parked for pod in sight.current)
        keep = max(0, sight.decision.replicas - taking_over)
        for found in deployments.values():
            if found is current:
                continue
            metadata = found["metadata"]
            if await scaler.retire(found, keep, sight, cares):
                await self._kube.delete(DEPLOYMENTS, metadata["namespace"], metadata["name"], uid=metadata["uid"])
                self._applied.pop(metadata["uid"], None)
                _log.info("a former revision is gone", namespace=metadata["namespace"], deployment=metadata["name"])
            pods = sight.former.get(metadata["labels"][REVISION_LABEL], ())
            keep = max(0, keep - sum(pod.takes_tasks for pod in pods))

    def _siblings(self, pool: WorkerPoolResource, cares: Sequence[Care]) -> dict[str, list[Sibling]]:
        """The other pools of each queue, by the queue's name in Redis."""
        found: dict[str, list[Sibling]] = {}
        for body in self._store.all("WorkerPool", pool.ref.namespace):
            if body["metadata"]["uid"] == pool.ref.uid or body["metadata"].get("deletionTimestamp"):
                continue
            served = (body.get("spec") or {}).get("queues") or []
            for care in cares:
                if care.resource.ref.name in served:
                    found.setdefault(care.queue.name, []).append(sibling(body))
        return found

    def _changed_by_us(self, found: Body) -> None:
        """Our own change of the number of pods is no reason to apply the rest again."""
        uid = found["metadata"]["uid"]
        if uid in self._applied:
            text, generation = self._applied[uid]
            self._applied[uid] = (text, generation + 1)

    def _own_deployments(self, pool: WorkerPoolResource) -> dict[str, Body]:
        """By revision. What only carries our labels is not ours: the owner reference counts."""
        return {
            found["metadata"]["labels"][REVISION_LABEL]: found
            for found in self._store.children("Deployment", pool.ref.namespace, pool.ref.name)
            if REVISION_LABEL in found["metadata"]["labels"] and _is_owned_by(found, pool.ref.uid)
        }

    def _pods(self, namespace: str, pool: str, revision: str | None = None) -> list[Body]:
        return [
            pod
            for pod in self._store.children("Pod", namespace, pool)
            if revision in (None, pod["metadata"]["labels"].get(REVISION_LABEL))
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def _is_outdated(self, found: Body, manifest: Mapping[str, Any]) -> bool:
        applied = self._applied.get(found["metadata"]["uid"])
        return applied != (_text_of(manifest), found["metadata"]["generation"])

    async def _apply(self, pool: WorkerPoolResource, manifest: dict[str, Any]) -> Body:
        """Make this the Deployment. A number of replicas in the manifest is for one that does not exist yet.

        The number belongs to the scaler. A field that we had applied and then leave out would be removed, and fall back
        to one; so a Deployment is created in the scaler's name, and what is applied never has the field.
        """
        namespace = pool.ref.namespace
        applied = {**manifest, "spec": {key: value for key, value in manifest["spec"].items() if key != "replicas"}}
        try:
            if "replicas" in manifest["spec"]:
                await self._kube.create(DEPLOYMENTS, namespace, manifest, manager=SCALER)
            made = await self._kube.apply(DEPLOYMENTS, namespace, applied)
        except ApiProblem as problem:
            if problem.is_of_dying_namespace:
                raise Refusal(
                    "NamespaceTerminating", "The namespace is being deleted, and the pool with it"
                ) from problem
            if problem.status in (400, 403, 422):
                raise Refusal(
                    "DeploymentRefused", f"the API server refuses the Deployment: {problem.message}"
                ) from problem
            raise
        self._applied[made["metadata"]["uid"]] = (_text_of(applied), made["metadata"]["generation"])
        self._store.put_own("Deployment", made)
        return made

    # ── saying how it is ─────────────────────────────────────────────────────────────────────────────

    async def _report(self, body: Body, pool: WorkerPoolResource, revision: str, sight: Sight | None) -> None:
        deployments = self._own_deployments(pool)
        pods = self._pods(pool.ref.namespace, pool.ref.name)
        current = deployments.get(revision)
        former = sorted(key for key in deployments if key != revision)
        old = body.get("status") or {}
        desired = int(old.get("desiredReplicas", 0)) if sight is None else sight.decision.replicas
        if pool.paused and current is not None:
            desired = int(current["spec"].get("replicas", 1))
        problem = pod_problem([current] if current else [], pods)
        limited = _scaling_limited(sight, problem)
        conditions = [
            _ready_condition(desired, _ready(pods, revision), _set_aside(sight), problem, paused=pool.paused),
            _scaling_active(pool, sight is not None),
            limited,
            condition("Draining", True, "FormerRevision", f"Workers of revision {', '.join(former)} finish their tasks")
            if former
            else condition("Draining", False, "NotDraining", "No worker is being replaced"),
            condition("Paused", True, "Paused", "Replicas are left as they are until spec.paused is false")
            if pool.paused
            else condition("Paused", False, "NotPaused", "Replicas are looked after"),
        ]
        now = datetime.now(UTC)
        members = None if sight is None else [*sight.current, *(pod for each in sight.former.values() for pod in each)]
        status = workerpool_status(
            pool,
            old,
            desired=desired,
            revision=revision,
            revisions={
                key: (int((found.get("status") or {}).get("replicas", 0)), _ready(pods, key))
                for key, found in deployments.items()
            },
            busy=None if members is None else sum(pod.work.is_busy for pod in members),
            idle=None if members is None else sum(pod.work.is_idle for pod in members),
            draining=None if members is None else sum(pod.work.is_draining for pod in members),
            conditions=merge_conditions(old.get("conditions") or [], conditions, pool.generation, now),
            # Of a paused pool nothing is carried out, whatever would be decided.
            decisions={} if sight is None or pool.paused else decision_status(old, sight.decision, now),
        )
        shown = {"desired": "desiredReplicas", "ready": "readyReplicas", "busy": "busy", "idle": "idle"}
        pods_by_state = {state: int(status.get(field, 0)) for state, field in {**shown, "draining": "draining"}.items()}
        place = (pool.ref.namespace, pool.ref.name)
        self._metrics.show(*place, pods_by_state, limited.reason if limited.status == "True" else None)
        self._metrics.show_backlog(*place, None if sight is None else backlog(sight.decision.figures))
        await self._reporter.report(body, status)

    async def _report_refusal(self, body: Body, refusal: Refusal) -> None:
        old = body.get("status") or {}
        generation = body["metadata"]["generation"]
        self._metrics.show_backlog(body["metadata"]["namespace"], body["metadata"]["name"], None)
        refused = [
            condition("Ready", False, refusal.reason, refusal.message),
            condition("ScalingActive", False, refusal.reason, refusal.message),
        ]
        conditions = merge_conditions(old.get("conditions") or [], refused, generation, datetime.now(UTC))
        await self._reporter.report(body, {**old, "observedGeneration": generation, "conditions": conditions})


def _text_of(manifest: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(manifest, order="deterministic")


def _check_backend(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource]) -> None:
    try:
        common_backend(pool, queues)
    except InvalidResource as error:
        raise Refusal("QueuesDisagree", str(error)) from error


def _first_size(pool: WorkerPoolResource, sight: Sight | None, recent_need: int) -> int:
    """How many pods a new revision begins with: what is needed, and what was needed lately by the one before."""
    if sight is None:
        return pool.within_bounds(pool.min_replicas if pool.replicas is None else pool.replicas)
    return max(sight.decision.replicas, min(recent_need, pool.max_replicas) if pool.replicas is None else 0)


def _ready(pods: Sequence[Body], revision: str) -> int:
    return sum(
        is_ready(pod)
        for pod in pods
        if pod["metadata"]["labels"].get(REVISION_LABEL) == revision and not pod["metadata"].get("deletionTimestamp")
    )


def _set_aside(sight: Sight | None) -> int:
    """Workers that could work, and are not asked to: their pods are unready, as they should be."""
    return 0 if sight is None else sum(pod.work.is_draining for pod in sight.current)


def _is_owned_by(found: Body, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or [])


def _ready_condition(desired: int, ready: int, set_aside: int, problem: Problem | None, *, paused: bool) -> Condition:
    if problem is not None:
        return condition("Ready", False, problem.reason, problem.message)
    if ready + set_aside < desired and not paused:
        return condition("Ready", False, "WaitingForPods", f"{ready} of {desired} pods are ready")
    return condition("Ready", True, "PodsReady", "As many pods as are wanted are ready")


def _scaling_active(pool: WorkerPoolResource, is_reachable: bool) -> Condition:
    if pool.paused:
        return condition("ScalingActive", False, "Paused", "spec.paused is true")
    if not is_reachable:
        return condition(
            "ScalingActive", False, "BackendUnreachable", "Redis does not answer: no replica is changed meanwhile"
        )
    if pool.replicas is not None:
        message = "The number of pods is spec.replicas; remove it to have it follow the load"
        return condition("ScalingActive", True, "FixedSize", message)
    return condition("ScalingActive", True, "FollowsLoad", "The number of pods follows what is in the queues")


def _scaling_limited(sight: Sight | None, problem: Problem | None) -> Condition:
    if problem is not None:
        return condition("ScalingLimited", True, problem.reason, problem.message)
    if sight is not None:
        decision, figures = sight.decision, sight.decision.figures
        if decision.reason is Reason.AT_MAXIMUM:
            message = f"{decision.message}; raise it to have more"
            return condition("ScalingLimited", True, "AtMaximum", message)
        # A pool that follows the load is at its minimum whenever there is little to do: no news.
        if decision.reason is Reason.AT_MINIMUM and figures.fixed_replicas is not None:
            return condition("ScalingLimited", True, "AtMinimum", f"{decision.message}; lower it to have fewer")
        if decision.reason is Reason.STEP_LIMITED:
            return condition("ScalingLimited", True, "StepLimited", decision.message)
    return condition("ScalingLimited", False, "WithinBounds", "Between minReplicas and maxReplicas")
