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

from headrace.model.config import Boost, Level, Promotion, QueueConfig, RetryPolicy
from headrace.model.errors import HeadraceError
from headrace.queue.settings import RedisSettings
from headrace_operator.resources import (
    REDIS_CA_FILE,
    InvalidResource,
    RedisReference,
    Ref,
    SecretKey,
    TaskQueueResource,
    WorkerPoolResource,
    common_backend,
    redis_settings,
)

SECRET = "s3cr3t-Word"


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


# ── TaskQueue ────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_needs_a_redis_and_nothing_else():
    read = queue()
    assert read.ref == Ref("shop", "orders", "uid-of-orders")
    assert (read.generation, read.created_at) == (3, datetime(2030, 1, 31, 12, tzinfo=UTC))
    assert (read.tenant, read.queue_name, read.paused, read.deletion_policy) == ("shop", "orders", None, "Retain")
    assert read.config == QueueConfig("orders")


def test_the_levels_that_the_schema_fills_in_are_those_of_the_library():
    levels = [
        {"name": "high", "weight": 1, "maxRetries": 5, "timeoutSeconds": 300},
        {"name": "medium", "maxRetries": 3, "timeoutSeconds": 600, "promoteAfterSeconds": 1200, "promoteBatch": 50},
        {"name": "low", "maxRetries": 2, "timeoutSeconds": 900, "promoteAfterSeconds": 600, "promoteBatch": 100},
    ]
    assert queue(levels=levels).config == QueueConfig("orders")


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


def test_every_field_of_a_configuration_can_be_said():
    read = queue(
        tenant="acme",
        queue="orders-eu",
        levels=[
            {"name": "a", "weight": 6, "maxRetries": 0, "timeoutSeconds": 1.5},
            {"name": "b", "weight": 3},
            {"name": "c", "promoteAfterSeconds": 20},
            {"name": "d", "promoteAfterSeconds": 10, "promoteTo": "a", "promoteBatch": 7},
        ],
        defaultLevel="d",
        selection="Weighted",
        antiStarvation={"boosts": [{"afterSeconds": 30, "factor": 1.5}, {"afterSeconds": 60, "factor": 2}]},
        promotion={"intervalSeconds": 5},
        lease={
            "seconds": 20,
            "heartbeatSeconds": 4,
            "workerDeadAfterSeconds": 50,
            "maxCrashes": 9,
            "repairLimit": 8,
        },
        retry={"baseSeconds": 2, "maxSeconds": 60, "jitter": 0.5, "timeoutFactor": 2},
        retention={"resultSeconds": 0, "deadLetterSeconds": 0, "idempotencySeconds": 5, "maxEvents": 0},
        limits={"maxPayloadBytes": 1000, "maxDelaySeconds": 99},
        paused=False,
        deletionPolicy="Purge",
    )
    assert (read.tenant, read.queue_name, read.paused, read.deletion_policy) == ("acme", "orders-eu", False, "Purge")
    assert read.config == QueueConfig(
        name="orders-eu",
        levels=(
            Level("a", weight=6.0, max_retries=0, timeout_s=1.5),
            Level("b", weight=3.0),
            Level("c"),
            Level("d"),
        ),
        default_level="d",
        selection="weighted",
        boosts=(Boost(30.0, 1.5), Boost(60.0, 2.0)),
        promotions=(Promotion("d", "a", 10.0, 7), Promotion("c", "b", 20.0)),
        promotion_interval_s=5.0,
        retry=RetryPolicy(base_s=2.0, max_s=60.0, jitter=0.5, timeout_factor=2.0),
        lease_s=20.0,
        heartbeat_s=4.0,
        worker_dead_after_s=50.0,
        max_crashes=9,
        repair_limit=8,
        idempotency_window_s=5.0,
        result_retention_s=0.0,
        dead_letter_retention_s=None,
        max_payload_bytes=1000,
        max_delay_s=99.0,
        events_max=0,
    )


def test_a_field_that_is_new_in_the_configuration_has_a_place_in_the_manifest():
    """`test_every_field_of_a_configuration_can_be_said` sets them all; here is the reminder to extend it."""
    assert set(QueueConfig.__struct_fields__) == {
        "name", "levels", "default_level", "selection", "boosts", "promotions", "promotion_interval_s", "retry",
        "lease_s", "heartbeat_s", "worker_dead_after_s", "max_crashes", "repair_limit", "idempotency_window_s",
        "result_retention_s", "dead_letter_retention_s", "max_payload_bytes", "max_delay_s", "events_max",
    }  # fmt: skip


def test_levels_of_one_s_own_come_without_promotions_even_if_they_are_named_like_the_default():
    levels = [
        {"name": "high", "maxRetries": 5, "timeoutSeconds": 300},
        {"name": "medium", "maxRetries": 3, "timeoutSeconds": 600},
        {"name": "low", "maxRetries": 2, "timeoutSeconds": 900},
    ]
    assert queue(levels=levels).config.promotion_rules == ()


def test_null_is_the_same_as_nothing():
    nothing: dict[str, Any] = dict.fromkeys(
        ("tenant", "queue", "levels", "defaultLevel", "selection", "antiStarvation", "lease", "retry", "paused")
    )
    assert queue(**nothing) == queue()


def test_fields_of_a_newer_schema_are_passed_over():
    assert queue(novelty={"a": 1}, lease={"novelty": 1}) == queue()


LEVELS = [{"name": "high"}, {"name": "low"}]

QUEUE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"tenant": "ACME"}, "spec.tenant: 'ACME' is not allowed; use lower-case letters, digits, '-' and '.', "),
    ({"queue": "a/b"}, "spec.queue: 'a/b' is not allowed; use lower-case letters"),
    ({"queue": ""}, "spec.queue: '' is not allowed"),
    ({"levels": []}, "spec.levels: has 0 levels; a queue has 1 to 32"),
    ({"levels": {}}, "spec.levels: must be a list, not an object"),
    ({"levels": ["high"]}, "spec.levels[0]: must be an object, not 'high'"),
    ({"levels": [{"weight": 1}]}, "spec.levels[0].name: is missing; give it a value"),
    ({"levels": [*LEVELS, {"name": "low"}]}, "spec.levels[2].name: 'low' appears twice; level names are unique"),
    ({"levels": [{"name": "Low"}]}, "spec.levels[0].name: 'Low' is not allowed"),
    ({"levels": [LEVELS[0], {"name": "low", "weight": 0}]}, "spec.levels[1].weight: is 0; it must be above 0"),
    (
        {"levels": [LEVELS[0], {"name": "low", "maxRetries": -1}]},
        "spec.levels[1].maxRetries: is -1; it must be a whole number from 0 to 1000",
    ),
    (
        {"levels": [{"name": "a", "maxRetries": 1.5}]},
        "spec.levels[0].maxRetries: must be a whole number, not 1.5",
    ),
    ({"levels": [{"name": "a", "maxRetries": True}]}, "spec.levels[0].maxRetries: must be a whole number, not true"),
    ({"levels": [{"name": "a", "timeoutSeconds": 0}]}, "spec.levels[0].timeoutSeconds: is 0; it must be above 0"),
    (
        {"levels": [{"name": "a", "timeoutSeconds": "5m"}]},
        "spec.levels[0].timeoutSeconds: must be a number, not '5m'",
    ),
    (
        {"levels": [{"name": "a", "timeoutSeconds": 10**400}]},
        "spec.levels[0].timeoutSeconds: must be a number, not a number as large as that",
    ),
    (
        {"levels": [*LEVELS, {"name": "c", "promoteAfterSeconds": 9, "promoteTo": "nowhere"}]},
        "spec.levels[2].promoteTo: 'nowhere' is not one of high, low, c",
    ),
    (
        {"levels": [{"name": "a", "promoteAfterSeconds": 9, "promoteTo": "b"}, {"name": "b"}]},
        "spec.levels[0].promoteTo: 'b' is not higher than 'a'",
    ),
    (
        {"levels": [{"name": "a"}, {"name": "b", "promoteAfterSeconds": 9, "promoteTo": "b"}]},
        "spec.levels[1].promoteTo: 'b' is not higher than 'b'",
    ),
    (
        {"levels": [{"name": "a", "promoteAfterSeconds": 9}]},
        "spec.levels[0].promoteAfterSeconds: is on the highest level, above which there is none; leave it out",
    ),
    (
        {"levels": [*LEVELS, {"name": "c", "promoteAfterSeconds": 1}, {"name": "d", "promoteAfterSeconds": 0}]},
        "spec.levels[3].promoteAfterSeconds: is 0; it must be above 0",
    ),
    (
        {"levels": [*LEVELS, {"name": "c", "promoteAfterSeconds": 1, "promoteBatch": 0}, {"name": "d"}]},
        "spec.levels[2].promoteBatch: is 0; it must be a whole number from 1 to 10000",
    ),
    (
        {"levels": [LEVELS[0], {"name": "b", "promoteTo": "high"}]},
        "spec.levels[1].promoteTo: is without effect; set promoteAfterSeconds too, or leave it out",
    ),
    (
        {"levels": [LEVELS[0], {"name": "b", "promoteBatch": 5}]},
        "spec.levels[1].promoteBatch: is without effect; set promoteAfterSeconds too, or leave it out",
    ),
    ({"defaultLevel": "urgent"}, "spec.defaultLevel: 'urgent' is not one of high, medium, low"),
    ({"selection": "strict"}, "spec.selection: must be Strict or Weighted, not 'strict'"),
    (
        {"antiStarvation": {"boosts": [{"afterSeconds": 9, "factor": 1}, {"afterSeconds": 9, "factor": 2}]}},
        "spec.antiStarvation.boosts[1].afterSeconds: must be later than the boost before it",
    ),
    (
        {"antiStarvation": {"boosts": [{"afterSeconds": 9, "factor": 0}]}},
        "spec.antiStarvation.boosts[0].factor: is 0; it must be above 0",
    ),
    (
        {"antiStarvation": {"boosts": [{"afterSeconds": 9}]}},
        "spec.antiStarvation.boosts[0].factor: is missing; give it a value",
    ),
    ({"promotion": {"intervalSeconds": 0}}, "spec.promotion.intervalSeconds: is 0; it must be above 0"),
    ({"lease": []}, "spec.lease: must be an object, not a list"),
    ({"lease": {"seconds": -1}}, "spec.lease.seconds: is -1; it must be above 0"),
    (
        {"lease": {"seconds": 30, "heartbeatSeconds": 16}},
        "spec.lease.heartbeatSeconds: 16 is too slow; at most half of spec.lease.seconds (30)",
    ),
    (
        {"lease": {"workerDeadAfterSeconds": 29}},
        "spec.lease.workerDeadAfterSeconds: is 29; it must be at least 30",
    ),
    ({"lease": {"maxCrashes": 0}}, "spec.lease.maxCrashes: is 0; it must be a whole number from 1 to 1000"),
    ({"lease": {"repairLimit": 0}}, "spec.lease.repairLimit: is 0; it must be a whole number from 1 to 10000"),
    ({"retry": {"baseSeconds": -1}}, "spec.retry.baseSeconds: is -1; it must be at least 0"),
    ({"retry": {"baseSeconds": 9, "maxSeconds": 8}}, "spec.retry.maxSeconds: is 8; it must be at least 9"),
    ({"retry": {"jitter": 2}}, "spec.retry.jitter: is 2; it must be at most 1"),
    ({"retry": {"timeoutFactor": 0.5}}, "spec.retry.timeoutFactor: is 0.5; it must be at least 1"),
    ({"retention": {"resultSeconds": -1}}, "spec.retention.resultSeconds: is -1; it must be at least 0"),
    ({"retention": {"deadLetterSeconds": -1}}, "spec.retention.deadLetterSeconds: is -1; it must be above 0"),
    ({"retention": {"idempotencySeconds": 0}}, "spec.retention.idempotencySeconds: is 0; it must be above 0"),
    (
        {"retention": {"maxEvents": -1}},
        "spec.retention.maxEvents: is -1; it must be a whole number from 0 to 10000000",
    ),
    ({"limits": {"maxPayloadBytes": 0}}, "spec.limits.maxPayloadBytes: is 0; it must be a whole number from 1 to"),
    ({"limits": {"maxDelaySeconds": 0}}, "spec.limits.maxDelaySeconds: is 0; it must be above 0"),
    ({"paused": "yes"}, "spec.paused: must be true or false, not 'yes'"),
    ({"deletionPolicy": "Delete"}, "spec.deletionPolicy: must be Retain or Purge, not 'Delete'"),
    ({"redis": None}, "spec.redis: names no server; give it hosts, or a secretRef to a Secret with the key 'url'"),
    (
        {"redis": {"mode": "Single", "hosts": ["a"]}},
        "spec.redis.mode: must be Standalone, Sentinel or Cluster, not 'Si",
    ),
    ({"redis": {"hosts": "redis:6379"}}, "spec.redis.hosts: must be a list, not 'redis:6379'"),
    ({"redis": {"hosts": [6379]}}, "spec.redis.hosts[0]: must be a string, not 6379"),
    (
        {"redis": {"hosts": ["a", "b"]}},
        "spec.redis.hosts: names 2 servers; set mode to Sentinel or Cluster, or name one",
    ),
    (
        {"redis": {"mode": "Cluster", "hosts": [f"h{index}" for index in range(17)]}},
        "spec.redis.hosts: names 17 servers; at most 16",
    ),
    (
        {"redis": {"mode": "Cluster", "hosts": ["a"], "db": 1}},
        "spec.redis.db: is 1; a Redis Cluster has database 0 only",
    ),
    ({"redis": {"hosts": ["a"], "db": -1}}, "spec.redis.db: is -1; it must be a whole number from 0 to 65535"),
    (
        {"redis": {"mode": "Sentinel", "hosts": ["a"]}},
        "spec.redis.sentinelService: is missing; give the name by which the sentinels know the primary",
    ),
    (
        {"redis": {"mode": "Sentinel", "hosts": ["a"], "sentinelService": "a/b?c"}},
        "spec.redis.sentinelService: may have letters, digits, '.', '_' and '-' only",
    ),
    (
        {"redis": {"hosts": ["a"], "sentinelService": "m"}},
        "spec.redis.sentinelService: is for mode Sentinel; change the mode, or leave it out",
    ),
    ({"redis": {"secretRef": {}}}, "spec.redis.secretRef.name: is missing; give it a value"),
    (
        {"redis": {"secretRef": {"name": "A/b"}}},
        "spec.redis.secretRef.name: 'A/b' is not a name that Kubernetes allows",
    ),
    (
        {"redis": {"secretRef": {"name": "a"}, "db": 1}},
        "spec.redis.db: belongs to hosts; write it into the url in the Secret instead",
    ),
    (
        {"redis": {"hosts": ["a"], "tls": {"enabled": True, "caSecretRef": {"name": "a", "key": "../b"}}}},
        "spec.redis.tls.caSecretRef.key: '../b' is not a key that a Secret can have",
    ),
]


@pytest.mark.parametrize(("spec", "expected"), QUEUE_MISTAKES, ids=[expected[:60] for _, expected in QUEUE_MISTAKES])
def test_a_mistake_in_a_queue_is_named_as_the_manifest_names_it(spec, expected):
    with pytest.raises(InvalidResource) as caught:
        queue(**spec)
    assert str(caught.value).startswith(expected)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.problem}"


def test_no_error_says_a_name_of_the_library_s():
    for spec, _ in QUEUE_MISTAKES:
        with pytest.raises(InvalidResource) as caught:
            queue(**spec)
        assert "_s" not in str(caught.value)


def test_an_invalid_resource_is_invalid_input():
    assert issubclass(InvalidResource, HeadraceError)


def test_a_name_that_is_too_long_for_redis_is_a_mistake_in_the_name_unless_the_queue_has_its_own():
    with pytest.raises(InvalidResource, match="metadata.name: is 64 characters long"):
        queue("a" * 64)
    assert queue("a" * 64, queue="a").queue_name == "a"


@pytest.mark.parametrize("key", ["namespace", "name", "uid", "generation", "creationTimestamp"])
def test_what_identifies_a_resource_must_be_there(key):
    body = queue_body()
    del body["metadata"][key]
    with pytest.raises(InvalidResource, match=f"metadata.{key}: is missing"):
        TaskQueueResource.from_body(body)


@pytest.mark.parametrize("text", ["yesterday", "2030-01-31", "2030-01-31T12:00:00"])
def test_a_time_has_a_zone(text):
    body = queue_body()
    body["metadata"]["creationTimestamp"] = text
    with pytest.raises(InvalidResource, match="metadata.creationTimestamp: must be a time such as"):
        TaskQueueResource.from_body(body)


# ── where Redis is ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("redis", "url"),
    [
        ({"hosts": ["redis"]}, "redis://redis:6379/0"),
        ({"hosts": ["redis.data.svc.:7000"], "db": 3}, "redis://redis.data.svc.:7000/3"),
        ({"hosts": ["[FD00::7]"]}, "redis://[fd00::7]:6379/0"),
        ({"hosts": ["r"], "tls": {"enabled": True}}, "rediss://r:6379/0"),
        (
            {"hosts": ["r"], "tls": {"enabled": True, "caSecretRef": {"name": "ca"}, "checkHostname": False}},
            f"rediss://r:6379/0?tls_ca_file={REDIS_CA_FILE}&tls_check_hostname=false",
        ),
        (
            {"mode": "Sentinel", "hosts": ["a", "b:1"], "sentinelService": "my.master", "db": 2},
            "redis+sentinel://a:26379,b:1/my.master/2",
        ),
        ({"mode": "Cluster", "hosts": ["a", "b"], "tls": {"enabled": True}}, "rediss+cluster://a:6379,b:6379"),
        ({"secretRef": {"name": "orders-redis"}}, None),
    ],
)
def test_the_url_that_workers_get(redis, url):
    assert reference(**redis).url_without_login() == url


HOST_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,10}[a-z0-9])?(:[1-9][0-9]{0,3})?", fullmatch=True)


@given(
    st.lists(HOST_NAMES, min_size=1, max_size=3),
    st.sampled_from(["Standalone", "Sentinel", "Cluster"]),
    st.integers(0, 15),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_workers_read_the_same_from_the_url_as_the_operator_from_the_manifest(hosts, mode, db, tls, has_ca, check):
    redis: dict[str, Any] = {
        "mode": mode,
        "hosts": hosts[:1] if mode == "Standalone" else hosts,
        "db": 0 if mode == "Cluster" else db,
        "tls": {"enabled": tls, "checkHostname": check} | ({"caSecretRef": {"name": "ca"}} if has_ca else {}),
    }
    if mode == "Sentinel":
        redis["sentinelService"] = "mymaster"
    found = reference(**redis)
    url = found.url_without_login()
    assert url is not None
    assert RedisSettings.from_url(url) == redis_settings(found, None, REDIS_CA_FILE if found.ca_secret else None)


HOSTILE_HOSTS = [
    "",
    "redis:",
    "redis:0",
    "redis:65536",
    "redis:x",
    "redis/1",
    "redis?tls_check_hostname=false",
    "a,b",
    f"user:{SECRET}@redis",
    f"redis://:{SECRET}@redis",
    "re dis",
    "redis\n",
    "$(HOME)",
    "::1",
    "[::1",
    "[1:2]",
    "rédis",
    "redis:٦٣٧٩",
]


@pytest.mark.parametrize("host", HOSTILE_HOSTS)
def test_a_host_is_nothing_but_a_host(host):
    with pytest.raises(InvalidResource, match=r"spec.redis.hosts\[0\]") as caught:
        reference(hosts=[host])
    assert SECRET not in str(caught.value)


def test_without_tls_its_settings_may_stay():
    assert reference(hosts=["r"], tls={"caSecretRef": {"name": "ca"}, "checkHostname": False}) == reference(hosts=["r"])


def test_the_certificate_s_key_has_a_default():
    tls = {"enabled": True, "caSecretRef": {"name": "ca"}}
    assert reference(hosts=["r"], tls=tls).ca_secret == SecretKey("ca", "ca.crt")


def test_the_operator_logs_in_as_the_secret_says():
    found = reference(hosts=["r"], secretRef={"name": "orders-redis"})
    login = {"username": "u", "password": SECRET, "sentinel-password": "not for this mode"}
    settings = redis_settings(found, login, None)
    assert settings == RedisSettings(hosts=(("r", 6379),), username="u", password=SECRET)
    assert SECRET not in repr(found)


def test_sentinels_have_a_login_of_their_own():
    found = reference(mode="Sentinel", hosts=["s"], sentinelService="m", secretRef={"name": "orders-redis"})
    settings = redis_settings(found, {"sentinel-username": "su", "sentinel-password": "sp"}, None)
    assert (settings.sentinel_username, settings.sentinel_password) == ("su", "sp")
    assert (settings.username, settings.password) == (None, None)


def test_a_secret_may_have_the_whole_url():
    found = reference(secretRef={"name": "orders-redis"})
    settings = redis_settings(found, {"url": f"rediss+sentinel://u:{SECRET}@s1,s2/m/3?confirm_replicas=1"}, None)
    assert settings == RedisSettings(
        mode="sentinel",
        hosts=(("s1", 26379), ("s2", 26379)),
        sentinel_service="m",
        db=3,
        tls=True,
        username="u",
        password=SECRET,
        confirm_replicas=1,
    )


def test_the_operator_keeps_the_certificate_elsewhere_than_workers():
    found = reference(secretRef={"name": "s"}, tls={"enabled": True, "caSecretRef": {"name": "ca"}})
    settings = redis_settings(found, {"url": f"rediss://r?tls_ca_file={REDIS_CA_FILE}"}, "/somewhere/ca.crt")
    assert settings.tls_ca_file == "/somewhere/ca.crt"


def test_a_url_does_not_make_the_operator_wait_or_open_more_than_usual():
    options = "pool_size=9999&pool_wait_s=999&connect_timeout_s=999&command_timeout_s=999&confirm_timeout_s=998"
    settings = redis_settings(reference(secretRef={"name": "s"}), {"url": f"redis://r?{options}"}, None)
    assert settings == RedisSettings(hosts=(("r", 6379),))
    modest = "pool_size=2&pool_wait_s=1&connect_timeout_s=1&command_timeout_s=0.5&confirm_timeout_s=0.4"
    settings = redis_settings(reference(secretRef={"name": "s"}), {"url": f"redis://r?{modest}"}, None)
    assert (settings.pool_size, settings.command_timeout_s, settings.confirm_timeout_s) == (2, 0.5, 0.4)


TLS_WITH_CA = {"enabled": True, "caSecretRef": {"name": "redis-ca"}}
URL_ONLY = {"secretRef": {"name": "orders-redis"}}


@pytest.mark.parametrize(
    ("redis", "secret", "expected"),
    [
        (URL_ONLY, None, "spec.redis.secretRef: Secret orders-redis does not exist; create it in the same namespace"),
        (URL_ONLY, {}, "spec.redis.secretRef: Secret orders-redis has no key 'url'"),
        (URL_ONLY, {"url": ""}, "spec.redis.secretRef: Secret orders-redis has no key 'url'"),
        (URL_ONLY | {"hosts": ["r"]}, None, "spec.redis.secretRef: Secret orders-redis does not exist"),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r\n"},
            "spec.redis.secretRef: Secret orders-redis, key 'url' ends with a line break; store it without one",
        ),
        (
            URL_ONLY | {"hosts": ["r"]},
            {"password": f"{SECRET}\n"},
            "spec.redis.secretRef: Secret orders-redis, key 'password' ends with a line break; store it without one",
        ),
        (
            URL_ONLY,
            {"url": f"http://:{SECRET}@r"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': must start with one of redis://",
        ),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r?pool_size=many"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': pool_size: must be a whole number",
        ),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r/{'9' * 5000}"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is not the URL of a Redis",
        ),
        (
            URL_ONLY,
            {"url": "unix:///run/redis.sock"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is a Unix",
        ),
        (
            URL_ONLY,
            {"url": "rediss://r?tls_cert_file=/a&tls_key_file=/b"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': asks for a client certificate",
        ),
        (
            URL_ONLY | {"mode": "Cluster"},
            {"url": "redis+sentinel://r/m"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is of mode sentinel, but spec.redis.mode is cluster",
        ),
        (
            URL_ONLY | {"tls": {"enabled": True}},
            {"url": "redis://r"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is without TLS",
        ),
        (
            URL_ONLY | {"tls": TLS_WITH_CA},
            {"url": "rediss://r"},
            f"spec.redis.secretRef: Secret orders-redis, key 'url': does not use spec.redis.tls.caSecretRef; add the "
            f"option tls_ca_file={REDIS_CA_FILE}",
        ),
        (
            URL_ONLY,
            {"url": "rediss://r?tls_ca_file=/etc/passwd"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': has the option tls_ca_file, but there is no",
        ),
        (
            URL_ONLY | {"tls": {"enabled": True, "checkHostname": False}},
            {"url": "rediss://r"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': checks host names",
        ),
    ],
)
def test_what_can_be_wrong_with_a_secret(redis, secret, expected):
    found = reference(**redis)
    with pytest.raises(InvalidResource) as caught:
        redis_settings(found, secret, "/somewhere/ca.crt" if found.ca_secret else None)
    assert str(caught.value).startswith(expected)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_certificate_that_is_not_there():
    with pytest.raises(InvalidResource) as caught:
        redis_settings(reference(hosts=["r"], tls=TLS_WITH_CA), None, None)
    assert str(caught.value) == "spec.redis.tls.caSecretRef: Secret redis-ca has no key 'ca.crt'"


# ── WorkerPool ───────────────────────────────────────────────────────────────────────────────────────


def test_a_pool_needs_queues_an_image_and_tasks():
    read = pool()
    assert read.ref == Ref("shop", "workers", "uid-of-workers")
    assert (read.queues, read.image, read.tasks) == (("orders",), "shop:1", "shop.tasks:app")
    assert (read.image_pull_policy, read.concurrency, read.capabilities) == ("IfNotPresent", 5, ())
    assert (read.min_replicas, read.max_replicas, read.replicas) == (0, 10, None)
    assert (read.idle_seconds, read.target_drain_seconds, read.grace_seconds) == (120.0, 30.0, None)
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
        graceSeconds=0,
        paused=True,
    )
    assert (read.queues, read.image_pull_policy, read.concurrency) == (("orders", "mails"), "Always", 20)
    assert (read.capabilities, read.min_replicas, read.max_replicas, read.replicas) == (("gpu", "eu"), 2, 5, 9)
    assert (read.idle_seconds, read.target_drain_seconds, read.grace_seconds, read.paused) == (0.0, 0.5, 0, True)


@pytest.mark.parametrize(("asked", "given"), [(0, 2), (2, 2), (3, 3), (5, 5), (9, 5)])
def test_a_number_of_replicas_is_brought_within_bounds(asked, given):
    assert pool(minReplicas=2, maxReplicas=5).within_bounds(asked) == given


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


def test_a_template_is_copied_as_it_is():
    read = pool(template=FULL_TEMPLATE)
    assert read.template == FULL_TEMPLATE
    assert read.template["env"] is not FULL_TEMPLATE["env"]


def test_null_within_a_template_is_the_same_as_nothing():
    assert pool(template={"labels": None, "env": [{"name": "A", "value": None}]}).template == {"env": [{"name": "A"}]}


def _volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def _mount(**mount: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/data"} | mount]}


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
    ({"graceSeconds": 86_401}, "spec.graceSeconds: is 86401; it must be a whole number from 0 to 86400"),
    ({"template": []}, "spec.template: must be an object, not a list"),
]

TEMPLATE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "hostNetwork: cannot be set on a worker; possible here: labels, annotations, "),
    ({"securityContext": {"privileged": True}}, "securityContext: cannot be set on a worker"),
    ({"containers": []}, "containers: cannot be set on a worker"),
    (_volume(hostPath={"path": "/"}), "volumes[0].hostPath: cannot be set on a worker"),
    (_volume(), "volumes[0]: must have exactly one of configMap, secret, emptyDir, persistentVolumeClaim"),
    (_volume(emptyDir={}, secret={"secretName": "s"}), "volumes[0]: must have exactly one of"),
    (_volume(secret={"secretName": "s", "namespace": "other"}), "volumes[0].secret.namespace: cannot be set on"),
    (_volume(secret={}), "volumes[0].secret.secretName: is missing"),
    (_volume(secret={"secretName": "s", "defaultMode": 512}), "volumes[0].secret.defaultMode: is 512"),
    (_volume(emptyDir={"sizeLimit": True}), "volumes[0].emptyDir.sizeLimit: must be a quantity such as 500m or 256Mi"),
    ({"volumes": [{"name": "headrace-tmp", "emptyDir": {}}]}, "volumes[0].name: headrace-tmp is the operator's"),
    ({"volumes": [{"name": "v", "emptyDir": {}}] * 2}, "volumes[1].name: 'v' appears twice; keep one"),
    ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volumeMounts[0].name: 'v' is none of the volumes"),
    (_mount(mountPath="data"), "volumeMounts[0].mountPath: 'data' is no place for a volume"),
    (_mount(mountPath="/"), "volumeMounts[0].mountPath: '/' is no place for a volume"),
    (_mount(mountPath="//tmp"), "volumeMounts[0].mountPath: '//tmp' is no place for a volume"),
    (_mount(mountPath="/data/../tmp"), "volumeMounts[0].mountPath: '/data/../tmp' is no place for a volume"),
    (_mount(mountPath="/tmp/"), "volumeMounts[0].mountPath: '/tmp/' is no place for a volume"),
    (_mount(mountPath="/tmp"), "volumeMounts[0].mountPath: '/tmp' is the operator's; mount it elsewhere"),
    (_mount(mountPath="/etc/headrace"), "volumeMounts[0].mountPath: '/etc/headrace' is the operator's"),
    (_mount(mountPath="/etc/headrace/redis-tls"), "volumeMounts[0].mountPath: '/etc/headrace/redis-tls' is the op"),
    (_mount(subPath="../other"), "volumeMounts[0].subPath: leaves the volume"),
    (_mount(subPath="/etc"), "volumeMounts[0].subPath: leaves the volume"),
    (_mount(mountPropagation="Bidirectional"), "volumeMounts[0].mountPropagation: cannot be set on a worker"),
    ({"env": [{"name": "HEADRACE_TENANT", "value": "x"}]}, "env[0].name: HEADRACE_TENANT is set by the operator"),
    ({"env": [{"name": "A=B"}]}, "env[0].name: 'A=B' cannot name a variable"),
    ({"env": [{"name": "A", "value": "a"}, {"name": "A"}]}, "env[1].name: 'A' appears twice; keep one"),
    ({"env": [{"name": "A", "value": 1}]}, "env[0].value: must be a string, not 1"),
    ({"env": [{"name": "A", "valueFrom": {}}]}, "env[0].valueFrom: must have exactly one of secretKeyRef"),
    (
        {"env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
        "env[0]: has both value and valueFrom; keep one",
    ),
    ({"envFrom": [{}]}, "envFrom[0]: must have exactly one of secretRef, configMapRef"),
    ({"labels": {"headrace.dev/pool": "other"}}, "labels.headrace.dev/pool: is set by the operator"),
    ({"labels": {"app.kubernetes.io/name": "x"}}, "labels.app.kubernetes.io/name: is set by the operator"),
    ({"labels": {"team": 1}}, "labels.team: must be a string, not 1"),
    (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"}},
        "annotations.controller.kubernetes.io/pod-deletion-cost: is set by the operator",
    ),
    ({"resources": {"claims": []}}, "resources.claims: cannot be set on a worker; possible here: requests, limits"),
    (
        {"resources": {"limits": {"cpu": []}}},
        "resources.limits.cpu: must be a quantity such as 500m or 256Mi, not a list",
    ),
    ({"priorityClassName": "system-node-critical"}, "priorityClassName: is for the cluster's own pods"),
    ({"serviceAccountName": "other:shop"}, "serviceAccountName: 'other:shop' is not a name that Kubernetes allows"),
    ({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "imagePullSecrets[1].name: 'a' appears twice; keep one"),
]
POOL_MISTAKES += [({"template": template}, f"spec.template.{expected}") for template, expected in TEMPLATE_MISTAKES]


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


def test_a_number_that_python_refuses_to_print_is_refused_too():
    with pytest.raises(InvalidResource, match="spec.lease.seconds: must be a number, not a number as large as that"):
        queue(lease={"seconds": 10**5000})


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
