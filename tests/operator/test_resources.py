"""Manifests as typed values: every field, every mistake with the manifest's own name for it, and no other error."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.config import QueueConfig
from headrace_operator.reading import InvalidResource, Ref
from headrace_operator.resources import TaskQueueResource, WorkerPoolResource, common_backend
from headrace_operator.scaling import StepLimit
from tests.operator.builders import FULL_TEMPLATE, pool, pool_body, queue, queue_body

# ── TaskQueue ────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_needs_a_redis_and_nothing_else():
    read = queue()
    assert read.ref == Ref("shop", "orders", "uid-of-orders")
    assert (read.generation, read.created_at) == (3, datetime(2030, 1, 31, 12, tzinfo=UTC))
    assert (read.tenant, read.queue_name, read.paused, read.deletion_policy) == ("shop", "orders", None, "Retain")
    assert read.config == QueueConfig("orders")


def test_the_schema_s_own_defaults_are_those_of_the_library():
    yaml = pytest.importorskip("yaml")
    crd = yaml.safe_load((Path(__file__).parents[2] / "crds/taskqueues.yaml").read_text(encoding="utf-8"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    filled = _filled_in({"redis": {"hosts": ["redis:6379"]}}, spec)
    assert TaskQueueResource.from_body(queue_body() | {"spec": filled}) == queue()


def _filled_in(value: Any, schema: dict[str, Any]) -> Any:
    """What the API server makes of a manifest: the defaults of what is missing, all the way down."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = inner["default"]
            if name in value:
                value[name] = _filled_in(value[name], inner)
    elif isinstance(value, list) and "items" in schema:
        value = [_filled_in(dict(item) if isinstance(item, dict) else item, schema["items"]) for item in value]
    return value


QUEUE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"tenant": "ACME"}, "spec.tenant: 'ACME' is not allowed; use lower-case letters, digits, '-' and '.', "),
    ({"queue": "a/b"}, "spec.queue: 'a/b' is not allowed; use lower-case letters"),
    ({"queue": ""}, "spec.queue: '' is not allowed"),
    ({"paused": "yes"}, "spec.paused: must be true or false, not 'yes'"),
    ({"deletionPolicy": "Delete"}, "spec.deletionPolicy: must be Retain or Purge, not 'Delete'"),
]


@pytest.mark.parametrize(("spec", "expected"), QUEUE_MISTAKES, ids=[expected[:60] for _, expected in QUEUE_MISTAKES])
def test_a_mistake_in_a_queue_is_named_as_the_manifest_names_it(spec, expected):
    with pytest.raises(InvalidResource) as caught:
        queue(**spec)
    assert str(caught.value).startswith(expected)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.problem}"
    assert "_s" not in str(caught.value), "which is how the library's names look"


def test_a_name_that_is_too_long_for_redis_is_a_mistake_in_the_name_unless_the_queue_has_its_own():
    with pytest.raises(InvalidResource, match="metadata.name: is 64 characters long"):
        queue("a" * 64)
    assert queue("a" * 64, queue="a").queue_name == "a"


# ── WorkerPool ───────────────────────────────────────────────────────────────────────────────────────


def test_a_pool_needs_queues_an_image_and_tasks():
    read = pool()
    assert read.ref == Ref("shop", "workers", "uid-of-workers")
    assert (read.queues, read.image, read.tasks) == (("orders",), "shop:1", "shop.tasks:app")
    assert (read.image_pull_policy, read.concurrency, read.capabilities) == ("IfNotPresent", 5, ())
    assert (read.min_replicas, read.max_replicas, read.replicas) == (0, 10, None)
    assert (read.idle_seconds, read.target_drain_seconds, read.grace_seconds) == (120.0, 30.0, None)
    assert (read.level_targets_s, read.backlog_per_worker, read.weight) == ({}, 50.0, 1)
    assert (read.scale_up_limit, read.scale_down_limit) == (None, None)
    assert (read.paused, read.template) == (False, {})
    assert hash(read) == hash(pool())


def test_every_field_of_a_pool():
    read = pool(
        queues=["orders", "mails"],
        imagePullPolicy="Always",
        concurrency=20,
        capabilities=["gpu", "eu"],
        minReplicas=2,
        maxReplicas=5,
        replicas=9,
        idleSeconds=0,
        targetDrainSeconds=0.5,
        levelTargets=[{"level": "high", "targetDrainSeconds": 2}, {"level": "low", "targetDrainSeconds": 600}],
        backlogPerWorker=0.5,
        weight=3,
        scaleUpLimit={"pods": 4, "seconds": 0.5},
        scaleDownLimit={"pods": 1},
        graceSeconds=0,
        paused=True,
    )
    assert (read.queues, read.image_pull_policy, read.concurrency) == (("orders", "mails"), "Always", 20)
    assert (read.capabilities, read.min_replicas, read.max_replicas, read.replicas) == (("gpu", "eu"), 2, 5, 9)
    assert (read.idle_seconds, read.target_drain_seconds, read.grace_seconds, read.paused) == (0.0, 0.5, 0, True)
    assert (read.level_targets_s, read.backlog_per_worker) == ({"high": 2.0, "low": 600.0}, 0.5)
    assert (read.weight, read.scale_up_limit, read.scale_down_limit) == (3, StepLimit(4, 0.5), StepLimit(1, 60.0))
    hash(read)


@pytest.mark.parametrize(("spec", "backlog"), [({}, 50), ({"concurrency": 1}, 10), ({"backlogPerWorker": 7}, 7)])
def test_a_worker_is_expected_to_deal_with_ten_times_its_slots_unless_it_is_said(spec, backlog):
    assert pool(**spec).backlog_per_worker == backlog


@pytest.mark.parametrize(("asked", "given"), [(0, 2), (2, 2), (3, 3), (5, 5), (9, 5)])
def test_a_number_of_replicas_is_brought_within_bounds(asked, given):
    assert pool(minReplicas=2, maxReplicas=5).within_bounds(asked) == given


POOL_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"queues": None}, "spec.queues: is missing; give it a value"),
    ({"queues": []}, "spec.queues: has 0 names; a pool serves 1 to 16 TaskQueues"),
    ({"queues": [f"q{index}" for index in range(17)]}, "spec.queues: has 17 names"),
    ({"queues": ["a", "b", "a"]}, "spec.queues[2]: 'a' appears twice; keep one"),
    ({"queues": ["other/orders"]}, "spec.queues[0]: 'other/orders' is not a name that Kubernetes allows"),
    ({"queues": [7]}, "spec.queues[0]: must be a string, not 7"),
    ({"image": ""}, "spec.image: is missing"),
    ({"image": "shop: 1"}, "spec.image: has a blank in it"),
    ({"imagePullPolicy": "always"}, "spec.imagePullPolicy: must be Always, IfNotPresent or Never, not 'always'"),
    ({"tasks": "shop.tasks"}, "spec.tasks: 'shop.tasks' is not module:attribute; write it as in shop.tasks:app"),
    ({"tasks": "--help"}, "spec.tasks: '--help' is not module:attribute"),
    ({"tasks": "$(HOME):app"}, "spec.tasks: '$(HOME):app' is not module:attribute"),
    ({"concurrency": 0}, "spec.concurrency: is 0; it must be a whole number from 1 to 1000"),
    ({"concurrency": "5"}, "spec.concurrency: must be a whole number, not '5'"),
    ({"capabilities": ["GPU"]}, "spec.capabilities[0]: 'GPU' is not allowed"),
    ({"capabilities": ["a", "a"]}, "spec.capabilities[1]: 'a' appears twice; keep one"),
    ({"capabilities": [f"c{index}" for index in range(17)]}, "spec.capabilities: has 17 names"),
    ({"minReplicas": -1}, "spec.minReplicas: is -1; it must be a whole number from 0 to 1000"),
    ({"minReplicas": 11}, "spec.minReplicas: is 11, above maxReplicas (10); change one of them"),
    ({"maxReplicas": 0, "minReplicas": 1}, "spec.minReplicas: is 1, above maxReplicas (0)"),
    ({"replicas": 1.5}, "spec.replicas: must be a whole number, not 1.5"),
    ({"idleSeconds": -1}, "spec.idleSeconds: is -1; it must be at least 0"),
    ({"targetDrainSeconds": 0}, "spec.targetDrainSeconds: is 0; it must be above 0"),
    ({"targetDrainSeconds": float("nan")}, "spec.targetDrainSeconds: must be a number, not nan"),
    ({"levelTargets": {}}, "spec.levelTargets: must be a list, not an object"),
    ({"levelTargets": [{"targetDrainSeconds": 5}]}, "spec.levelTargets[0].level: is missing; give it a value"),
    ({"levelTargets": [{"level": "high"}]}, "spec.levelTargets[0].targetDrainSeconds: is missing; give it a value"),
    (
        {"levelTargets": [{"level": "high", "targetDrainSeconds": 5}, {"level": "Low", "targetDrainSeconds": 5}]},
        "spec.levelTargets[1].level: 'Low' is not allowed; use lower-case letters",
    ),
    (
        {"levelTargets": [{"level": "high", "targetDrainSeconds": 5}, {"level": "high", "targetDrainSeconds": 6}]},
        "spec.levelTargets[1].level: 'high' appears twice; keep one",
    ),
    (
        {"levelTargets": [{"level": "high", "targetDrainSeconds": 0}]},
        "spec.levelTargets[0].targetDrainSeconds: is 0; it must be above 0 and at most 315360000",
    ),
    (
        {"levelTargets": [{"level": f"l{index}", "targetDrainSeconds": 5} for index in range(33)]},
        "spec.levelTargets: has 33 entries; at most 32 are allowed",
    ),
    ({"backlogPerWorker": 0}, "spec.backlogPerWorker: is 0; it must be above 0 and at most 1000000"),
    ({"backlogPerWorker": "10"}, "spec.backlogPerWorker: must be a number, not '10'"),
    ({"weight": 0}, "spec.weight: is 0; it must be a whole number from 1 to 1000"),
    ({"weight": 1.5}, "spec.weight: must be a whole number, not 1.5"),
    ({"scaleUpLimit": 4}, "spec.scaleUpLimit: must be an object, not 4"),
    ({"scaleUpLimit": {}}, "spec.scaleUpLimit.pods: is missing; give it a value"),
    ({"scaleUpLimit": {"pods": 0}}, "spec.scaleUpLimit.pods: is 0; it must be a whole number from 1 to 1000"),
    (
        {"scaleDownLimit": {"pods": 1, "seconds": 86_401}},
        "spec.scaleDownLimit.seconds: is 86401; it must be above 0 and at most 86400",
    ),
    ({"graceSeconds": 86_401}, "spec.graceSeconds: is 86401; it must be a whole number from 0 to 86400"),
    ({"template": []}, "spec.template: must be an object, not a list"),
]


@pytest.mark.parametrize(("spec", "expected"), POOL_MISTAKES, ids=[expected[:60] for _, expected in POOL_MISTAKES])
def test_a_mistake_in_a_pool_is_named_as_the_manifest_names_it(spec, expected):
    with pytest.raises(InvalidResource) as caught:
        pool(**spec)
    assert str(caught.value).startswith(expected)


def test_a_pool_s_name_leaves_room_for_what_a_pod_s_name_adds():
    assert pool("a" * 37).ref.name == "a" * 37
    with pytest.raises(InvalidResource, match="metadata.name: is 38 characters long; at most 37 are allowed"):
        pool("a" * 38)
    with pytest.raises(InvalidResource, match="metadata.name: becomes part of host names and cannot have dots"):
        pool("a.b")


# ── several queues in one pool ───────────────────────────────────────────────────────────────────────


def test_queues_that_agree():
    orders, mails = queue("orders"), queue("mails", redis={"hosts": ["redis"]})
    tenant, redis = common_backend(pool(queues=["orders", "mails"]), [mails, orders])
    assert (tenant, redis) == ("shop", orders.redis)


@pytest.mark.parametrize(
    ("spec", "difference"),
    [
        ({"tenant": "acme"}, "spec.tenant (shop, acme)"),
        ({"redis": {"hosts": ["other"]}}, "spec.redis.hosts (redis:6379, other:6379)"),
        ({"redis": {"hosts": ["redis"], "db": 1}}, "spec.redis.db (0, 1)"),
        ({"redis": {"hosts": ["redis"], "mode": "Cluster"}}, "spec.redis.mode (Standalone, Cluster)"),
        ({"redis": {"hosts": ["redis"], "tls": {"enabled": True}}}, "spec.redis.tls.enabled (false, true)"),
        ({"redis": {"hosts": ["redis"], "secretRef": {"name": "s"}}}, "spec.redis.secretRef.name (none, s)"),
        ({"redis": {"secretRef": {"name": "s"}}}, "spec.redis.hosts (redis:6379, none)"),
    ],
)
def test_queues_that_one_worker_cannot_serve(spec, difference):
    with pytest.raises(InvalidResource) as caught:
        common_backend(pool(queues=["orders", "mails"]), [queue("orders"), queue("mails", **spec)])
    assert caught.value.field == "spec.queues"
    assert caught.value.problem.startswith(f"TaskQueues orders and mails differ in {difference}; ")


def test_certificates_that_differ():
    one, other = ({"enabled": True, "caSecretRef": {"name": name}} for name in ("ca", "cb"))
    queues = [queue("orders", redis={"hosts": ["r"], "tls": one}), queue("mails", redis={"hosts": ["r"], "tls": other})]
    with pytest.raises(InvalidResource, match=r"spec.redis.tls.caSecretRef \(ca/ca.crt, cb/ca.crt\)"):
        common_backend(pool(queues=["orders", "mails"]), queues)


def test_a_queue_that_does_not_exist():
    with pytest.raises(InvalidResource) as caught:
        common_backend(pool(queues=["orders", "mails"]), [queue("orders")])
    assert str(caught.value) == "spec.queues[1]: TaskQueue mails does not exist; create it, or correct the name"


def test_two_resources_for_one_queue():
    queues = [queue("orders"), queue("mails", queue="orders")]
    with pytest.raises(
        InvalidResource, match="spec.queues: TaskQueues orders and mails are both queue orders; keep one"
    ):
        common_backend(pool(queues=["orders", "mails"]), queues)


# ── anything at all ──────────────────────────────────────────────────────────────────────────────────

WORDS = st.sampled_from(["orders", "high", "low", "", "Strict", "redis:6379", "/tmp", "system-x", "a" * 64, "$(X)"])
NUMBERS = st.one_of(st.integers(-2, 90_000), st.integers(), st.just(10**400), st.floats())
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@given(VALUES)
def test_anything_is_read_or_refused(value):
    for kind in (TaskQueueResource, WorkerPoolResource):
        with pytest.raises(InvalidResource):
            kind.from_body(value)


FULL_QUEUE_SPEC: dict[str, Any] = {
    "tenant": "acme",
    "queue": "orders",
    "redis": {
        "mode": "Sentinel",
        "hosts": ["a:1"],
        "db": 1,
        "sentinelService": "m",
        "tls": {"enabled": True, "caSecretRef": {"name": "ca", "key": "ca.crt"}, "checkHostname": False},
        "secretRef": {"name": "s"},
    },
    "levels": [
        {"name": "high", "weight": 1, "maxRetries": 5, "timeoutSeconds": 300},
        {"name": "low", "promoteAfterSeconds": 600, "promoteBatch": 100, "promoteTo": "high"},
    ],
    "defaultLevel": "low",
    "selection": "Strict",
    "antiStarvation": {"boosts": [{"afterSeconds": 30, "factor": 1.5}]},
    "promotion": {"intervalSeconds": 60},
    "lease": {"seconds": 30, "heartbeatSeconds": 10, "workerDeadAfterSeconds": 90, "maxCrashes": 3, "repairLimit": 20},
    "retry": {"baseSeconds": 1, "maxSeconds": 300, "jitter": 0, "timeoutFactor": 1.5},
    "retention": {"resultSeconds": 1, "deadLetterSeconds": 1, "idempotencySeconds": 1, "maxEvents": 1},
    "limits": {"maxPayloadBytes": 1, "maxDelaySeconds": 1},
    "paused": False,
    "deletionPolicy": "Retain",
}
FULL_POOL_SPEC: dict[str, Any] = {
    "queues": ["orders"],
    "image": "shop:1",
    "imagePullPolicy": "Always",
    "tasks": "shop.tasks:app",
    "concurrency": 5,
    "capabilities": ["gpu"],
    "minReplicas": 1,
    "maxReplicas": 10,
    "replicas": 3,
    "idleSeconds": 120,
    "targetDrainSeconds": 30,
    "levelTargets": [{"level": "high", "targetDrainSeconds": 5}],
    "backlogPerWorker": 50,
    "weight": 1,
    "scaleUpLimit": {"pods": 4, "seconds": 60},
    "scaleDownLimit": {"pods": 1, "seconds": 60},
    "graceSeconds": 30,
    "paused": False,
    "template": FULL_TEMPLATE,
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))][0 if path else 1 :]


def _with(value: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    if not path:
        return replacement
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(copy[path[0]], path[1:], replacement)
    return copy


QUEUE_BODY = queue_body(**FULL_QUEUE_SPEC)
POOL_BODY = pool_body(**FULL_POOL_SPEC)


def test_what_the_next_tests_spoil_is_whole():
    TaskQueueResource.from_body(QUEUE_BODY)
    WorkerPoolResource.from_body(POOL_BODY)


@given(st.sampled_from(_places(QUEUE_BODY)), VALUES)
def test_a_queue_with_anything_in_any_place_is_read_or_refused(place, value):
    try:
        read = TaskQueueResource.from_body(_with(QUEUE_BODY, place, value))
    except InvalidResource:
        return
    msgspec.json.encode(read.config)  # which is what is published
    read.redis.url_without_login()


@given(st.sampled_from(_places(POOL_BODY)), VALUES)
def test_a_pool_with_anything_in_any_place_is_read_or_refused(place, value):
    try:
        read = WorkerPoolResource.from_body(_with(POOL_BODY, place, value))
    except InvalidResource:
        return
    json.dumps(read.template, allow_nan=False)  # which is what becomes a pod
    assert set(read.template) <= set(FULL_TEMPLATE)
