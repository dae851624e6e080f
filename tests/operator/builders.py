"""Manifests for tests, and what is read from them."""

from __future__ import annotations

from typing import Any

from headrace_operator.redis_reference import RedisReference
from headrace_operator.resources import TaskQueueResource, WorkerPoolResource
from headrace_operator.scaling import Figures, LevelLoad, QueueLoad


def metadata(name: str) -> dict[str, Any]:
    return {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-of-{name}",
        "generation": 3,
        "creationTimestamp": "2030-01-31T12:00:00Z",
    }


def queue_body(name: str = "orders", **spec: Any) -> dict[str, Any]:
    """A TaskQueue as the API server returns it, but for the defaults, which the schema would have filled in."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "TaskQueue",
        "metadata": metadata(name),
        "spec": {"redis": {"hosts": ["redis:6379"]}} | spec,
    }


def pool_body(name: str = "workers", **spec: Any) -> dict[str, Any]:
    """A WorkerPool with nothing but what it needs."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": metadata(name),
        "spec": {"queues": ["orders"], "image": "shop:1", "tasks": "shop.tasks:app"} | spec,
    }


def queue(name: str = "orders", **spec: Any) -> TaskQueueResource:
    return TaskQueueResource.from_body(queue_body(name, **spec))


def pool(name: str = "workers", **spec: Any) -> WorkerPoolResource:
    return WorkerPoolResource.from_body(pool_body(name, **spec))


def reference(**redis: Any) -> RedisReference:
    return queue(redis=redis).redis


def level_load(name: str = "high", **changes: Any) -> LevelLoad:
    usual: dict[str, Any] = {"waiting": 0.0, "service_s": 10.0, "target_s": 30.0}
    return LevelLoad(level=name, **usual | changes)


def queue_load(*levels: LevelLoad, **changes: Any) -> QueueLoad:
    usual: dict[str, Any] = {"queue": "orders", "service_s": 10.0, "target_s": 30.0}
    return QueueLoad(levels=levels, **usual | changes)


def pool_figures(*queues: QueueLoad, **changes: Any) -> Figures:
    """Of a pool without workers, with the defaults of the schema."""
    usual: dict[str, Any] = {
        "replicas": 0,
        "concurrency": 5,
        "min_replicas": 0,
        "max_replicas": 10,
        "idle_seconds": 120.0,
        "backlog_per_worker": 50.0,
    }
    return Figures(queues=queues, **usual | changes)


FULL_TEMPLATE: dict[str, Any] = {
    "labels": {"team": "shop"},
    "annotations": {"shop.example/owner": "ann"},
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"nvidia.com/gpu": 1}},
    "env": [
        {"name": "MODE", "value": "test"},
        {"name": "EMPTY", "value": ""},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
    "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "priorityClassName": "batch",
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "shop",
    "volumes": [
        {"name": "a", "configMap": {"name": "c", "optional": True, "defaultMode": 0o440}},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "e", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    ],
    "volumeMounts": [
        {"name": "a", "mountPath": "/etc/shop", "readOnly": True},
        {"name": "e", "mountPath": "/data", "subPath": "models"},
    ],
}
