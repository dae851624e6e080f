"""The objects that a WorkerPool stands for.

A Deployment's template never changes in place: every change makes another revision, and with it another Deployment, so
that new workers start while the old ones finish their tasks. What has no meaning for a worker (how many there shall be,
when one counts as idle) is therefore not in the template.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from posixpath import dirname
from typing import Any, Final

from .pod_template import OWN_VOLUMES
from .redis_reference import REDIS_CA_FILE, RedisReference
from .resources import (
    API_VERSION,
    POOL_LABEL,
    REVISION_LABEL,
    TaskQueueResource,
    WorkerPoolResource,
    common_backend,
)

CONTAINER: Final = "worker"
HEALTH_PORT: Final = 8080
LONGEST_DERIVED_GRACE_S: Final = 3600
"""Whoever wants to wait longer for a node's drain has to say so in the pool."""
HAND_BACK_S: Final = 15
"""What is not finished within the grace period still has to be handed back before the kubelet kills."""
REVISION_CHARS: Final = 8

_TMP_VOLUME, _TLS_VOLUME = OWN_VOLUMES
_LABELS: Final = {
    "app.kubernetes.io/name": "headrace-worker",
    "app.kubernetes.io/managed-by": "headrace-operator",
}


def worker_template(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource]) -> dict[str, Any]:
    """The pod template of the pool's workers, without the revision that is made of it.

    ``queues`` are the TaskQueues that the pool names, in any order; raises `InvalidResource` when one of them is
    missing or when one worker cannot serve them all.
    """
    tenant, redis = common_backend(pool, queues)
    given = pool.template
    grace_s = grace_period_s(pool, queues)
    # Ours come first, so that the user's can refer to them: $(HEADRACE_TENANT) means only what stands before it.
    environment = [*_identity(pool, queues, tenant), *_redis_address(redis), *given.get("env", [])]
    metadata: dict[str, Any] = {"labels": {**given.get("labels", {}), **_LABELS, POOL_LABEL: pool.ref.name}}
    if given.get("annotations"):
        metadata["annotations"] = dict(given["annotations"])
    spec: dict[str, Any] = {
        "automountServiceAccountToken": "serviceAccountName" in given,
        # Redis is found by its name; variables for every service of the namespace would only slow the start.
        "enableServiceLinks": False,
        # The first process of a PID namespace ignores each signal that it does not handle yet. In one that the pod
        # shares, that is not the worker: told to stop while Python still starts, it ends instead of going on unaware.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": grace_s + HAND_BACK_S,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(pool, _arguments(pool, queues, grace_s), environment, redis)],
        "volumes": _volumes(redis, given),
    }
    for key in ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets", "serviceAccountName"):
        if given.get(key):
            spec[key] = given[key]
    return {"metadata": metadata, "spec": spec}


def grace_period_s(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource]) -> int:
    """How long a worker's running tasks may go on after SIGTERM; by default as long as the longest may run at all."""
    if pool.grace_seconds is not None:
        return pool.grace_seconds
    longest_s = max(level.timeout_s for queue in queues for level in queue.config.levels)
    return min(math.ceil(longest_s), LONGEST_DERIVED_GRACE_S)


def revision_of(template: Mapping[str, Any]) -> str:
    """A name for the template: the same for the same content, whatever the order of its keys."""
    canonical = json.dumps(template, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:REVISION_CHARS]


def deployment(pool: WorkerPoolResource, template: Mapping[str, Any], *, replicas: int | None = None) -> dict[str, Any]:
    """The Deployment of one revision.

    ``replicas`` is for its creation only. Left out of what is applied later, the field stays with the scaler.
    """
    revision = revision_of(template)
    own = {POOL_LABEL: pool.ref.name, REVISION_LABEL: revision}
    labels = {**template["metadata"]["labels"], REVISION_LABEL: revision}
    spec: dict[str, Any] = {
        # There is nothing to roll back to within a Deployment: an older revision is another Deployment.
        "revisionHistoryLimit": 0,
        "progressDeadlineSeconds": 600,
        "selector": {"matchLabels": own},
        "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"{pool.ref.name}-{revision}",
            "namespace": pool.ref.namespace,
            "labels": {**_LABELS, **own},
            "ownerReferences": [owner_reference(pool)],
        },
        "spec": spec,
    }


def owner_reference(pool: WorkerPoolResource) -> dict[str, Any]:
    """What makes Kubernetes delete a child with its pool."""
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkerPool",
        "name": pool.ref.name,
        "uid": pool.ref.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


# ── the container ────────────────────────────────────────────────────────────────────────────────────


def _container(
    pool: WorkerPoolResource, arguments: list[str], environment: list[dict[str, Any]], redis: RedisReference
) -> dict[str, Any]:
    given = pool.template
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": pool.image,
        "imagePullPolicy": pool.image_pull_policy,
        "args": arguments,
        "env": environment,
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        # Ready as soon as it claims. The kubelet asks when the container has started, and then every second; the first
        # question waits until the worker is there.
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 1},
        # Alive while the claim loop moves, whether or not Redis answers.
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "health"},
            "periodSeconds": 10,
            "failureThreshold": 3,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # Why a worker failed is then part of its pod, and comes from there into the pool's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(redis, given),
    }
    for key in ("envFrom", "resources"):
        if given.get(key):
            container[key] = given[key]
    return container


def _arguments(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource], grace_s: int) -> list[str]:
    names = {queue.ref.name: queue.queue_name for queue in queues}
    return [
        pool.tasks,
        *(f"--queue={names[name]}" for name in pool.queues),
        f"--concurrency={pool.concurrency}",
        *(f"--capability={capability}" for capability in pool.capabilities),
        f"--grace={grace_s}",
        f"--health-port={HEALTH_PORT}",
    ]


def _identity(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource], tenant: str) -> list[dict[str, Any]]:
    """Whose worker this is, also for what it tells Prometheus of itself."""
    variables = {
        "HEADRACE_TENANT": tenant,
        "HEADRACE_NAMESPACE": pool.ref.namespace,
        "HEADRACE_POOL": pool.ref.name,
    }
    renamed = sorted(f"{queue.queue_name}={queue.ref.name}" for queue in queues if queue.queue_name != queue.ref.name)
    if renamed:
        variables["HEADRACE_QUEUE_NAMES"] = ",".join(renamed)
    return [{"name": name, "value": value} for name, value in variables.items()]


def _redis_address(redis: RedisReference) -> list[dict[str, Any]]:
    url = redis.url_without_login()
    if url is None:
        return [_from_secret("HEADRACE_REDIS_URL", redis, "url")]
    variables: list[dict[str, Any]] = [{"name": "HEADRACE_REDIS_URL", "value": url}]
    if redis.secret_name is not None:
        logins = ["username", "password"]
        if redis.mode == "sentinel":
            logins += ["sentinel-username", "sentinel-password"]
        variables += [
            _from_secret(f"HEADRACE_REDIS_{login.upper().replace('-', '_')}", redis, login, optional=True)
            for login in logins
        ]
    return variables


def _from_secret(variable: str, redis: RedisReference, key: str, *, optional: bool = False) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": redis.secret_name, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}


# ── volumes ──────────────────────────────────────────────────────────────────────────────────────────


def _volumes(redis: RedisReference, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    ours: list[dict[str, Any]] = [{"name": _TMP_VOLUME, "emptyDir": {}}]
    if redis.ca_secret is not None:
        # Under one name for all, so that the URL does not depend on what the Secret calls it.
        items = [{"key": redis.ca_secret.key, "path": REDIS_CA_FILE.rpartition("/")[2]}]
        ours.append({"name": _TLS_VOLUME, "secret": {"secretName": redis.ca_secret.name, "items": items}})
    return [*ours, *given.get("volumes", [])]


def _mounts(redis: RedisReference, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    ours: list[dict[str, Any]] = [{"name": _TMP_VOLUME, "mountPath": "/tmp"}]
    if redis.ca_secret is not None:
        ours.append({"name": _TLS_VOLUME, "mountPath": dirname(REDIS_CA_FILE), "readOnly": True})
    return [*ours, *given.get("volumeMounts", [])]
