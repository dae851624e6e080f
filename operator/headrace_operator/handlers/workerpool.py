"""WorkerPool: a Deployment for each revision of its template, as many pods as are wanted, and none lost on the way.

A changed template starts new workers beside the old ones. Once those are ready, the old ones are asked to take on
nothing more; each goes when it has finished what it has. A pool that shrinks gives up idle workers only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from headrace.model.errors import HeadraceError
from headrace.queue.queue import Queue

from ..kube import DEPLOYMENTS, PODS, SCALER, SERVICE_ACCOUNTS, ApiProblem, Kube
from ..manifests import deployment, revision_of, worker_template
from ..reading import InvalidResource
from ..reporting import Reporter
from ..resources import POOL_LABEL, REVISION_LABEL, TaskQueueResource, WorkerPoolResource, common_backend
from ..status import Condition, Problem, condition, merge_conditions, pod_problem, workerpool_status
from ..store import Body, Store
from ..workers import PodWork, work_by_pod
from .refusal import Refusal
from .taskqueue import Care, TaskQueues

RESYNC_S: Final = 60.0
_BROKEN_RESYNC_S: Final = 5.0
_SOON_S: Final = 0.5
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_FIRST_TO_GO: Final = "-1000"
ALLOW_WORKERS: Final = "headrace.dev/allow-workers"

_log = structlog.get_logger(__name__)


class WorkerPools:
    """The WorkerPools of this leader's term."""

    def __init__(self, kube: Kube, store: Store, reporter: Reporter, taskqueues: TaskQueues) -> None:
        self._kube = kube
        self._store = store
        self._reporter = reporter
        self._taskqueues = taskqueues
        self._applied: dict[str, tuple[bytes, int]] = {}
        """What was last applied to a Deployment, by its uid, and the generation it had then."""

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Make the WorkerPool true; returns when to look again."""
        body = self._store.get("WorkerPool", namespace, name)
        if body is None or body["metadata"].get("deletionTimestamp"):
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
            await self._make_true(body, pool, cares, queues)
        except Refusal as refusal:
            await self._report_refusal(body, refusal)
            return _BROKEN_RESYNC_S
        return RESYNC_S

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
    ) -> None:
        namespace, name = pool.ref.namespace, pool.ref.name
        template = worker_template(pool, queues)
        revision = revision_of(template)
        deployments = self._own_deployments(pool)
        work = work_by_pod([care.keeper for care in cares])
        wanted = pool.replicas if pool.replicas is not None else pool.min_replicas
        desired = pool.within_bounds(wanted)

        current = deployments.get(revision)
        if current is None:
            start = 0 if pool.paused and deployments else desired
            current = await self._apply(pool, deployment(pool, template, replicas=start))
            deployments[revision] = current
        elif self._is_outdated(current, manifest := deployment(pool, template)):
            current = deployments[revision] = await self._apply(pool, manifest)
        if work is not None and not pool.paused:
            await self._resize(current, desired, cares, work, self._pods(namespace, name, revision))
            old = [found for key, found in deployments.items() if key != revision]
            if old and _ready(current) >= desired:
                await self._retire(old, cares, work)
        await self._report(body, pool, revision, wanted, desired, work)

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

    async def _resize(
        self, found: Body, desired: int, cares: Sequence[Care], work: Mapping[str, PodWork], pods: Sequence[Body]
    ) -> None:
        """Bring a Deployment to so many pods: up at once, down by idle workers only."""
        replicas = found["spec"].get("replicas", 1)
        if replicas > desired:
            await self._shrink(found, replicas - desired, cares, work, pods, force=False)
            return
        await self._take_back(pods, cares, work)
        if replicas < desired:
            await self._scale(found, desired)

    async def _take_back(self, pods: Sequence[Body], cares: Sequence[Care], work: Mapping[str, PodWork]) -> None:
        """Workers that were asked to go, and are wanted after all: a pool that is changed back has some."""
        wanted = [
            pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and _work_of(pod, work).is_draining
        ]
        for pod in wanted:
            if _DELETION_COST in (pod["metadata"].get("annotations") or {}):
                await self._annotate(pod, None)
        await self._steer(wanted, cares, work, lambda queue, workers: queue.undrain(workers))

    async def _retire(self, old: Sequence[Body], cares: Sequence[Care], work: Mapping[str, PodWork]) -> None:
        """Have the workers of former revisions finish what they have, and go."""
        for found in old:
            metadata = found["metadata"]
            replicas = found["spec"].get("replicas", 1)
            labels = metadata["labels"]
            pods = self._pods(metadata["namespace"], labels[POOL_LABEL], labels[REVISION_LABEL])
            if replicas > 0:
                await self._shrink(found, replicas, cares, work, pods, force=True)
            elif not pods and not (found.get("status") or {}).get("replicas"):
                await self._kube.delete(DEPLOYMENTS, metadata["namespace"], metadata["name"], uid=metadata["uid"])
                self._applied.pop(metadata["uid"], None)
                _log.info("a former revision is gone", namespace=metadata["namespace"], deployment=metadata["name"])

    async def _shrink(
        self,
        found: Body,
        too_many: int,
        cares: Sequence[Care],
        work: Mapping[str, PodWork],
        pods: Sequence[Body],
        *,
        force: bool,
    ) -> None:
        """Take away up to ``too_many`` pods whose workers are parked, and ask others to park.

        A parked worker has said itself that it takes on nothing more, and holds nothing. Its pod is unready by then,
        and has the lowest deletion cost: so these are the ones that the ReplicaSet removes.
        """
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        parked = [pod for pod in alive if _work_of(pod, work).is_parked or _never_began(pod, work)][:too_many]
        missing = too_many - len(parked)
        others = [pod for pod in alive if pod not in parked and not _work_of(pod, work).is_draining]
        draining = sum(_work_of(pod, work).is_draining for pod in alive if pod not in parked)
        if not force:
            others = [pod for pod in others if _work_of(pod, work).is_idle][: max(0, missing - draining)]
        await self._steer(others, cares, work, lambda queue, workers: queue.drain(workers, force=force))
        if not parked:
            return
        for pod in parked:
            if (pod["metadata"].get("annotations") or {}).get(_DELETION_COST) != _FIRST_TO_GO:
                await self._annotate(pod, _FIRST_TO_GO)
        await self._scale(found, found["spec"].get("replicas", 1) - len(parked))

    async def _annotate(self, pod: Body, deletion_cost: str | None) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"annotations": {_DELETION_COST: deletion_cost}, "uid": metadata["uid"]}}
        try:
            await self._kube.merge(PODS, metadata["namespace"], metadata["name"], patch)
        except ApiProblem as problem:
            if not (problem.is_missing or problem.is_conflict):  # it has gone meanwhile
                raise

    async def _steer(
        self,
        pods: Sequence[Body],
        cares: Sequence[Care],
        work: Mapping[str, PodWork],
        steer: Callable[[Queue, list[str]], Awaitable[object]],
    ) -> None:
        """Tell these pods' workers something, in each of their queues."""
        for care in cares:
            workers = [worker.worker for pod in pods for worker in _work_of(pod, work).in_queue(care.queue.name)]
            if workers:
                try:
                    await steer(care.queue, workers)
                except HeadraceError as error:
                    raise Refusal("BackendUnreachable", f"workers cannot be told to drain: {error}") from error

    async def _scale(self, found: Body, replicas: int) -> None:
        """Only if nobody has been quicker: what was decided on is what is changed."""
        metadata = found["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"replicas": replicas}}
        try:
            await self._kube.merge(DEPLOYMENTS, metadata["namespace"], metadata["name"], patch, "scale")
        except ApiProblem as problem:
            if not problem.is_conflict:
                raise
            return  # the change that came between is looked at next
        _log.info("scaled", namespace=metadata["namespace"], deployment=metadata["name"], replicas=replicas)

    # ── saying how it is ─────────────────────────────────────────────────────────────────────────────

    async def _report(
        self,
        body: Body,
        pool: WorkerPoolResource,
        revision: str,
        wanted: int,
        desired: int,
        work: Mapping[str, PodWork] | None,
    ) -> None:
        deployments = self._own_deployments(pool)
        pods = self._pods(pool.ref.namespace, pool.ref.name)
        current = deployments.get(revision)
        ready = _ready(current) if current else 0
        former = sorted(key for key in deployments if key != revision)
        conditions = [
            _ready_condition(desired, ready, pod_problem([current] if current else [], pods), paused=pool.paused),
            _scaling_active(pool, work is not None),
            _scaling_limited(pool, wanted, desired),
            condition("Draining", True, "FormerRevision", f"Workers of revision {', '.join(former)} finish their tasks")
            if former
            else condition("Draining", False, "NotDraining", "No worker is being replaced"),
            condition("Paused", True, "Paused", "Replicas are left as they are until spec.paused is false")
            if pool.paused
            else condition("Paused", False, "NotPaused", "Replicas are looked after"),
        ]
        of_pods = [] if work is None else [_work_of(pod, work) for pod in pods]
        old = body.get("status") or {}
        status = workerpool_status(
            pool,
            old,
            desired=desired,
            revision=revision,
            revisions={
                key: (int((found.get("status") or {}).get("replicas", 0)), _ready(found))
                for key, found in deployments.items()
            },
            busy=None if work is None else sum(each.is_busy for each in of_pods),
            idle=None if work is None else sum(each.is_idle for each in of_pods),
            draining=None if work is None else sum(each.is_draining for each in of_pods),
            conditions=merge_conditions(old.get("conditions") or [], conditions, pool.generation, datetime.now(UTC)),
        )
        await self._reporter.report(body, status)

    async def _report_refusal(self, body: Body, refusal: Refusal) -> None:
        old = body.get("status") or {}
        generation = body["metadata"]["generation"]
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


def _work_of(pod: Body, work: Mapping[str, PodWork]) -> PodWork:
    return work.get(pod["metadata"]["name"], PodWork())


def _never_began(pod: Body, work: Mapping[str, PodWork]) -> bool:
    """A pod that has no worker and is not ready holds nothing: it cannot start, or has only just been made."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return pod["metadata"]["name"] not in work and not is_ready


def _ready(found: Body) -> int:
    status = found.get("status") or {}
    if status.get("observedGeneration", 0) < found["metadata"]["generation"]:
        return 0 if found["spec"].get("replicas", 1) else int(status.get("readyReplicas", 0))
    return int(status.get("readyReplicas", 0))


def _is_owned_by(found: Body, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or [])


def _ready_condition(desired: int, ready: int, problem: Problem | None, *, paused: bool) -> Condition:
    if problem is not None:
        return condition("Ready", False, problem.reason, problem.message)
    if ready < desired and not paused:
        return condition("Ready", False, "WaitingForPods", f"{ready} of {desired} pods are ready")
    return condition("Ready", True, "PodsReady", "As many pods as are wanted are ready")


def _scaling_active(pool: WorkerPoolResource, is_reachable: bool) -> Condition:
    if pool.paused:
        return condition("ScalingActive", False, "Paused", "spec.paused is true")
    if not is_reachable:
        return condition(
            "ScalingActive", False, "BackendUnreachable", "Redis does not answer: no replica is changed meanwhile"
        )
    return condition("ScalingActive", True, "FixedSize", "The number of pods follows spec.replicas or spec.minReplicas")


def _scaling_limited(pool: WorkerPoolResource, wanted: int, desired: int) -> Condition:
    if wanted > desired:
        message = f"{wanted} replicas are wanted and spec.maxReplicas is {pool.max_replicas}; raise it to have more"
        return condition("ScalingLimited", True, "AtMaximum", message)
    if wanted < desired:
        message = f"{wanted} replicas are wanted and spec.minReplicas is {pool.min_replicas}; lower it to have fewer"
        return condition("ScalingLimited", True, "AtMinimum", message)
    return condition("ScalingLimited", False, "WithinBounds", "Between minReplicas and maxReplicas")
