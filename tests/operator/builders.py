"""Manifests for tests, and what is read from them."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headrace.model.figures import LevelCounters, Pulse, QueueCounters, WorkerPulse
from headrace.model.states import WorkerState
from headrace_operator.metrics.page import MetricsPage
from headrace_operator.metrics.queue_figures import QueueView
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


def pulse(**changes: Any) -> Pulse:
    """Of a queue with two levels, in which one task waits and one worker holds two."""
    usual: dict[str, Any] = {
        "at_s": 1000.0,
        "paused": False,
        "levels": (("high", 0, None), ("low", 1, 990.0)),
        "executing": 2,
        "delayed": 0,
        "dead_letter": 0,
        "workers": (WorkerPulse("w", WorkerState.ACTIVE, 2, 5, False, "w", 0.0),),
        "workers_dead": 0,
        "completed_last_minute": 0,
        "failed_last_minute": 0,
        "promoted": 0,
        "forward_at_s": None,
        "reclaim_at_s": None,
        "promote_at_s": None,
        "purge_at_s": None,
        "counters": counters(),
    }
    return Pulse(**usual | changes)


def counters(enqueued: int = 0, *levels: LevelCounters, promoted: int = 0, orphans: int = 0) -> QueueCounters:
    """Of the same queue, by level as far as that matters."""
    named = {level.level: level for level in (LevelCounters("high"), LevelCounters("low"), *levels)}
    return QueueCounters(
        enqueued=enqueued, orphans=orphans, promoted=(("low", "high", promoted),), levels=tuple(named.values())
    )


def queue_view(name: str, namespace: str = "shop", *, age: int = 0, **changes: Any) -> QueueView:
    """A TaskQueue whose Redis answers. One with a greater ``age`` was created earlier."""
    return QueueView(namespace, name, f"2030-01-{28 - age:02d}T12:00:00Z", True, pulse(**changes))


def out_of_reach(view: QueueView) -> QueueView:
    return view._replace(is_reachable=False, pulse=None)


_LABELS = ("namespace", "pool", "queue", "state", "status", "priority", "from", "to", "reason", "le")


async def told(page: MetricsPage) -> dict[tuple[str, ...], float]:
    """What Prometheus reads of this replica."""
    return read_page((await page.text()).decode())


def read_page(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, those in the order of docs/metrics.md."""
    return {
        (sample.name, *(sample.labels[label] for label in _LABELS if label in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


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
