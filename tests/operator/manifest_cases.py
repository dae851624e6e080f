"""Manifests that must not get in, and what kubectl says about each of them.

The texts are complete. Those between "Invalid value" and our own words are the API server's, as of Kubernetes 1.34.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

API_VERSION = "headrace.dev/v1alpha1"
NAME = "orders"

_REDIS = {"hosts": ["redis:6379"]}
_POOL = {"queues": ["orders"], "image": "shop:1", "tasks": "shop.tasks:app"}
_SKIPPED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_NAME_RULE = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
_OBJECT_RULE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


@dataclass(frozen=True)
class Case:
    """A manifest that is refused, and the whole answer."""

    name: str
    manifest: str
    error: str
    stored: str | None = None
    """What is there before, for changes that are not allowed."""


def taskqueue(name: str = NAME, **spec: Any) -> str:
    """A TaskQueue with the least that it needs, and these fields. None leaves a field out."""
    return _manifest("TaskQueue", name, {"redis": _REDIS} | spec)


def workerpool(name: str = NAME, **spec: Any) -> str:
    """A WorkerPool with the least that it needs, and these fields. None leaves a field out."""
    return _manifest("WorkerPool", name, _POOL | spec)


def _manifest(kind: str, name: str, spec: Mapping[str, Any]) -> str:
    given = {key: value for key, value in spec.items() if value is not None}
    return json.dumps({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": given})


def _text(spec: str = "") -> str:
    """A TaskQueue in YAML, for what JSON cannot say."""
    return f"apiVersion: {API_VERSION}\nkind: TaskQueue\nmetadata: {{name: {NAME}}}\n{spec}\n"


def _redis(**fields: Any) -> str:
    return taskqueue(redis=fields)


def _template(**fields: Any) -> str:
    return workerpool(template=fields)


def _mount(path: str, **fields: Any) -> str:
    mounts = [{"name": "data", "mountPath": path, **fields}]
    return _template(volumes=[{"name": "data", "emptyDir": {}}], volumeMounts=mounts)


def _taskqueue_is(*problems: str, name: str = NAME) -> str:
    return _invalid("TaskQueue", name, problems)


def _workerpool_is(*problems: str, name: str = NAME) -> str:
    return _invalid("WorkerPool", name, problems)


def _invalid(kind: str, name: str, problems: tuple[str, ...]) -> str:
    said = f'The {kind} "{name}" is invalid: '
    return said + (problems[0] if len(problems) == 1 else "".join(f"\n* {problem}" for problem in problems))


def _mismatch(field: str, value: str, rule: str) -> str:
    return f"{field}: Invalid value: {json.dumps(value)}: {field} in body should match '{rule}'"


def _unknown(kind: str, field: str) -> str:
    """What strict validation, which is kubectl's default, says about a field that does not exist."""
    return (
        f'Error from server (BadRequest): error when creating "STDIN": {kind} in version "v1alpha1" '
        f'cannot be handled as a {kind}: strict decoding error: unknown field "{field}"'
    )


TASKQUEUE_CASES = (
    # ── shape ────────────────────────────────────────────────────────────────────────────────────────
    Case("nothing is said", _text(), _taskqueue_is("spec: Required value", _SKIPPED)),
    Case("Redis is missing", taskqueue(redis=None), _taskqueue_is("spec.redis: Required value", _SKIPPED)),
    Case("a field is misspelt", taskqueue(retries={"baseSeconds": 2}), _unknown("TaskQueue", "spec.retries")),
    Case(
        "levels is a text",
        taskqueue(levels="high, low"),
        _taskqueue_is(
            'spec.levels: Invalid value: "string": spec.levels in body must be of type array: "string"', _SKIPPED
        ),
    ),
    Case(
        "a level is a text",
        taskqueue(levels=["high", "low"]),
        _taskqueue_is(
            'spec.levels[0]: Invalid value: "string": spec.levels[0] in body must be of type object: "string"',
            'spec.levels[1]: Invalid value: "string": spec.levels[1] in body must be of type object: "string"',
            _SKIPPED,
        ),
    ),
    Case(
        "a number is a text",
        taskqueue(lease={"seconds": "30"}),
        _taskqueue_is(
            'spec.lease.seconds: Invalid value: "string": spec.lease.seconds in body must be of type number: "string"',
            _SKIPPED,
        ),
    ),
    Case(
        "a count is a fraction",
        taskqueue(levels=[{"name": "high", "maxRetries": 2.5}]),
        _taskqueue_is(
            'spec.levels[0].maxRetries: Invalid value: "number": spec.levels[0].maxRetries in body must be of '
            'type integer: "number"',
            _SKIPPED,
        ),
    ),
    Case(
        "a switch is a text",
        taskqueue(paused="yes"),
        _taskqueue_is(
            'spec.paused: Invalid value: "string": spec.paused in body must be of type boolean: "string"', _SKIPPED
        ),
    ),
    # These two do not even get as far as the API server: JSON has no words for them.
    Case(
        "not a number",
        _text("spec: {redis: {hosts: [redis]}, lease: {seconds: .nan}}"),
        "error: error parsing STDIN: error converting YAML to JSON: json: unsupported value: NaN",
    ),
    Case(
        "without end",
        _text("spec: {redis: {hosts: [redis]}, lease: {seconds: .inf}}"),
        "error: error parsing STDIN: error converting YAML to JSON: json: unsupported value: +Inf",
    ),
    Case(
        "the name is too long for Redis keys",
        taskqueue("q" * 64),
        _taskqueue_is(
            'metadata.name: Invalid value: "string": the name of a TaskQueue has at most 63 characters, '
            "because it becomes part of Redis keys; choose a shorter one",
            name="q" * 64,
        ),
    ),
    # ── tenant and queue ─────────────────────────────────────────────────────────────────────────────
    Case(
        "a tenant that would leave its keys",
        taskqueue(tenant="orders}:x"),
        _taskqueue_is(_mismatch("spec.tenant", "orders}:x", _NAME_RULE)),
    ),
    Case(
        "a tenant that is a path",
        taskqueue(tenant="../payments"),
        _taskqueue_is(_mismatch("spec.tenant", "../payments", _NAME_RULE)),
    ),
    Case(
        "a tenant without a name",
        taskqueue(tenant=""),
        _taskqueue_is('spec.tenant: Invalid value: "": spec.tenant in body should be at least 1 chars long'),
    ),
    Case(
        "a tenant that is too long",
        taskqueue(tenant="t" * 64),
        _taskqueue_is("spec.tenant: Too long: may not be more than 63 bytes", _SKIPPED),
    ),
    Case(
        "a queue that is another queue's key",
        taskqueue(queue="orders:config"),
        _taskqueue_is(_mismatch("spec.queue", "orders:config", _NAME_RULE)),
    ),
    # ── levels ───────────────────────────────────────────────────────────────────────────────────────
    Case(
        "no levels",
        taskqueue(levels=[]),
        _taskqueue_is("spec.levels: Invalid value: 0: spec.levels in body should have at least 1 items"),
    ),
    Case(
        "too many levels",
        taskqueue(levels=[{"name": f"l{n}"} for n in range(33)]),
        _taskqueue_is("spec.levels: Too many: 33: must have at most 32 items", _SKIPPED),
    ),
    Case(
        "a level without a name",
        taskqueue(levels=[{"weight": 2}]),
        _taskqueue_is("spec.levels[0].name: Required value", _SKIPPED),
    ),
    Case(
        "a level in capitals",
        taskqueue(levels=[{"name": "High"}]),
        _taskqueue_is(_mismatch("spec.levels[0].name", "High", _NAME_RULE)),
    ),
    Case(
        "two levels of the same name",
        taskqueue(levels=[{"name": "high"}, {"name": "low"}, {"name": "high"}]),
        _taskqueue_is('spec.levels: Invalid value: "array": two levels are named high; rename or remove one of them'),
    ),
    Case(
        "an unknown default level",
        taskqueue(defaultLevel="normal"),
        _taskqueue_is(
            "spec.defaultLevel: Forbidden: there is no level normal; write the name of one of the levels, or remove it"
        ),
    ),
    Case(
        "promotion to nowhere",
        taskqueue(levels=[{"name": "high", "promoteAfterSeconds": 60}, {"name": "low"}]),
        _taskqueue_is(
            'spec.levels: Invalid value: "array": level high comes first and is the highest, so there is '
            "nowhere to promote its tasks to; remove its promoteAfterSeconds, or list the highest level first"
        ),
    ),
    Case(
        "promotion to an unknown level",
        taskqueue(levels=[{"name": "high"}, {"name": "low", "promoteAfterSeconds": 60, "promoteTo": "hihg"}]),
        _taskqueue_is(
            'spec.levels: Invalid value: "array": there is no level hihg to promote to; write the name of a '
            "higher level, or remove promoteTo"
        ),
    ),
    Case(
        "promotion downwards",
        taskqueue(
            levels=[
                {"name": "high"},
                {"name": "medium", "promoteAfterSeconds": 60, "promoteTo": "low"},
                {"name": "low"},
            ]
        ),
        _taskqueue_is(
            'spec.levels: Invalid value: "array": level medium cannot be promoted to itself or to a lower '
            "level; write a level that stands before it in the list"
        ),
    ),
    Case(
        "promotion to itself",
        taskqueue(levels=[{"name": "high"}, {"name": "low", "promoteAfterSeconds": 60, "promoteTo": "low"}]),
        _taskqueue_is(
            'spec.levels: Invalid value: "array": level low cannot be promoted to itself or to a lower level; '
            "write a level that stands before it in the list"
        ),
    ),
    Case(
        "promotion at no time",
        taskqueue(levels=[{"name": "high"}, {"name": "low", "promoteTo": "high"}]),
        _taskqueue_is(
            "spec.levels[1].promoteTo: Forbidden: promoteTo says where to, but not when; write "
            "promoteAfterSeconds beside it, or remove it"
        ),
    ),
    Case(
        "promotion in batches at no time",
        taskqueue(levels=[{"name": "high"}, {"name": "low", "promoteBatch": 10}]),
        _taskqueue_is(
            "spec.levels[1].promoteBatch: Forbidden: promoteBatch says how many at a time, but not when; write "
            "promoteAfterSeconds beside it, or remove it"
        ),
    ),
    Case(
        "a level that is never drawn",
        taskqueue(levels=[{"name": "high", "weight": 0}]),
        _taskqueue_is(
            "spec.levels[0].weight: Invalid value: 0: spec.levels[0].weight in body should be greater than 0"
        ),
    ),
    Case(
        "fewer than no retries",
        taskqueue(levels=[{"name": "high", "maxRetries": -1}]),
        _taskqueue_is(
            "spec.levels[0].maxRetries: Invalid value: -1: spec.levels[0].maxRetries in body should be greater "
            "than or equal to 0"
        ),
    ),
    Case(
        "no time to run",
        taskqueue(levels=[{"name": "high", "timeoutSeconds": 0}]),
        _taskqueue_is(
            "spec.levels[0].timeoutSeconds: Invalid value: 0: spec.levels[0].timeoutSeconds in body should be "
            "greater than 0"
        ),
    ),
    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────
    Case(
        "an unknown selection",
        taskqueue(selection="Random"),
        _taskqueue_is('spec.selection: Unsupported value: "Random": supported values: "Strict", "Weighted"', _SKIPPED),
    ),
    Case(
        "boosts out of order",
        taskqueue(antiStarvation={"boosts": [{"afterSeconds": 60, "factor": 2}, {"afterSeconds": 30, "factor": 1.5}]}),
        _taskqueue_is(
            'spec.antiStarvation.boosts: Invalid value: "array": each boost must begin later than the one '
            "before it; sort them by afterSeconds"
        ),
    ),
    Case(
        "two boosts at once",
        taskqueue(antiStarvation={"boosts": [{"afterSeconds": 60, "factor": 2}, {"afterSeconds": 60, "factor": 3}]}),
        _taskqueue_is(
            'spec.antiStarvation.boosts: Invalid value: "array": each boost must begin later than the one '
            "before it; sort them by afterSeconds"
        ),
    ),
    Case(
        "too many boosts",
        taskqueue(antiStarvation={"boosts": [{"afterSeconds": n, "factor": 2} for n in range(33)]}),
        _taskqueue_is("spec.antiStarvation.boosts: Too many: 33: must have at most 32 items", _SKIPPED),
    ),
    Case(
        "promotion all the time",
        taskqueue(promotion={"intervalSeconds": 0.001}),
        _taskqueue_is(
            "spec.promotion.intervalSeconds: Invalid value: 0.001: spec.promotion.intervalSeconds in body "
            "should be greater than or equal to 1"
        ),
    ),
    Case(
        "a lease that ends at once",
        taskqueue(lease={"seconds": 0, "heartbeatSeconds": 10}),
        _taskqueue_is(
            "spec.lease.seconds: Invalid value: 0: spec.lease.seconds in body should be greater than 0",
            "spec.lease.heartbeatSeconds: Forbidden: a lease must survive a lost heartbeat; write at most half "
            "of lease.seconds, or a longer lease",
        ),
    ),
    Case(
        "heartbeats too far apart",
        taskqueue(lease={"heartbeatSeconds": 20}),
        _taskqueue_is(
            "spec.lease.heartbeatSeconds: Forbidden: a lease must survive a lost heartbeat; write at most half "
            "of lease.seconds, or a longer lease"
        ),
    ),
    Case(
        "a lease too short for the usual heartbeat",
        taskqueue(lease={"seconds": 15}),
        _taskqueue_is(
            "spec.lease.heartbeatSeconds: Forbidden: a lease must survive a lost heartbeat; write at most half "
            "of lease.seconds, or a longer lease"
        ),
    ),
    Case(
        "dead before the lease ends",
        taskqueue(lease={"workerDeadAfterSeconds": 20}),
        _taskqueue_is(
            "spec.lease.workerDeadAfterSeconds: Forbidden: a worker is not dead while it may hold a lease; "
            "write at least lease.seconds, or a shorter lease"
        ),
    ),
    Case(
        "a first delay above the longest",
        taskqueue(retry={"baseSeconds": 10, "maxSeconds": 5}),
        _taskqueue_is(
            "spec.retry.maxSeconds: Forbidden: the longest delay is shorter than the first one; write at least "
            "retry.baseSeconds, or a smaller baseSeconds"
        ),
    ),
    Case(
        "more jitter than delay",
        taskqueue(retry={"jitter": 1.5}),
        _taskqueue_is(
            "spec.retry.jitter: Invalid value: 1.5: spec.retry.jitter in body should be less than or equal to 1"
        ),
    ),
    Case(
        "less time with every retry",
        taskqueue(retry={"timeoutFactor": 0.5}),
        _taskqueue_is(
            "spec.retry.timeoutFactor: Invalid value: 0.5: spec.retry.timeoutFactor in body should be greater "
            "than or equal to 1"
        ),
    ),
    Case(
        "a negative retention",
        taskqueue(retention={"resultSeconds": -1}),
        _taskqueue_is(
            "spec.retention.resultSeconds: Invalid value: -1: spec.retention.resultSeconds in body should be "
            "greater than or equal to 0"
        ),
    ),
    Case(
        "a delay beyond all bounds",
        taskqueue(limits={"maxDelaySeconds": 1e300}),
        _taskqueue_is(
            "spec.limits.maxDelaySeconds: Invalid value: 1e+300: spec.limits.maxDelaySeconds in body should be "
            "less than or equal to 3.1536e+08"
        ),
    ),
    Case(
        "payloads beyond all bounds",
        taskqueue(limits={"maxPayloadBytes": 1 << 40}),
        _taskqueue_is(
            "spec.limits.maxPayloadBytes: Invalid value: 1099511627776: spec.limits.maxPayloadBytes in body "
            "should be less than or equal to 268435456"
        ),
    ),
    Case(
        "an unknown deletion policy",
        taskqueue(deletionPolicy="Delete"),
        _taskqueue_is(
            'spec.deletionPolicy: Unsupported value: "Delete": supported values: "Retain", "Purge"', _SKIPPED
        ),
    ),
    # ── Redis ────────────────────────────────────────────────────────────────────────────────────────
    Case(
        "Redis is nowhere",
        _redis(),
        _taskqueue_is(
            'spec.redis: Required value: write where Redis is, as in hosts: ["redis:6379"], or name a Secret '
            "that has the key url, as in secretRef: {name: orders-redis}"
        ),
    ),
    Case(
        "no hosts",
        _redis(hosts=[]),
        _taskqueue_is("spec.redis.hosts: Invalid value: 0: spec.redis.hosts in body should have at least 1 items"),
    ),
    Case(
        "too many hosts",
        _redis(mode="Cluster", hosts=[f"redis-{n}" for n in range(17)]),
        _taskqueue_is("spec.redis.hosts: Too many: 17: must have at most 16 items", _SKIPPED),
    ),
    Case(
        "a host with a login",
        _redis(hosts=["user:secret@redis:6379"]),
        _taskqueue_is(
            'spec.redis.hosts[0]: Invalid value: "string": write host or host:port, as in redis:6379 or '
            '"[fd00::7]:6379"; a login belongs in a Secret, and a database in db'
        ),
    ),
    Case(
        "a host that is a URL",
        _redis(hosts=["redis://redis:6379/0"]),
        _taskqueue_is(
            'spec.redis.hosts[0]: Invalid value: "string": write host or host:port, as in redis:6379 or '
            '"[fd00::7]:6379"; a login belongs in a Secret, and a database in db'
        ),
    ),
    Case(
        "a host with an option",
        _redis(hosts=["redis:6379?pool_size=1"]),
        _taskqueue_is(
            'spec.redis.hosts[0]: Invalid value: "string": write host or host:port, as in redis:6379 or '
            '"[fd00::7]:6379"; a login belongs in a Secret, and a database in db'
        ),
    ),
    Case(
        "a port that does not exist",
        _redis(hosts=["redis:70000"]),
        _taskqueue_is(
            'spec.redis.hosts[0]: Invalid value: "string": write host or host:port, as in redis:6379 or '
            '"[fd00::7]:6379"; a login belongs in a Secret, and a database in db'
        ),
    ),
    Case(
        "a socket of the node",
        _redis(hosts=["unix:///run/redis.sock"]),
        _taskqueue_is(
            'spec.redis.hosts[0]: Invalid value: "string": write host or host:port, as in redis:6379 or '
            '"[fd00::7]:6379"; a login belongs in a Secret, and a database in db'
        ),
    ),
    Case(
        "several hosts for one server",
        _redis(hosts=["redis-0", "redis-1"]),
        _taskqueue_is(
            "spec.redis.hosts: Forbidden: several hosts are for mode: Sentinel or mode: Cluster; write one of "
            "them, or that one host only"
        ),
    ),
    Case(
        "an unknown mode",
        _redis(mode="sentinel", hosts=["redis"]),
        _taskqueue_is(
            'spec.redis.mode: Unsupported value: "sentinel": supported values: "Standalone", "Sentinel", "Cluster"',
            _SKIPPED,
        ),
    ),
    Case(
        "sentinels without a service",
        _redis(mode="Sentinel", hosts=["s-0", "s-1"]),
        _taskqueue_is(
            "spec.redis.sentinelService: Required value: write under which name the sentinels know the "
            "primary, as in sentinelService: mymaster"
        ),
    ),
    Case(
        "a service without sentinels",
        _redis(hosts=["redis"], sentinelService="mymaster"),
        _taskqueue_is(
            "spec.redis.sentinelService: Forbidden: sentinelService is for Sentinel; write mode: Sentinel, or remove it"
        ),
    ),
    Case(
        "a database of a cluster",
        _redis(mode="Cluster", hosts=["redis-0"], db=3),
        _taskqueue_is("spec.redis.db: Forbidden: a Redis Cluster has database 0 only; remove db"),
    ),
    Case(
        "a database below zero",
        _redis(hosts=["redis"], db=-1),
        _taskqueue_is("spec.redis.db: Invalid value: -1: spec.redis.db in body should be greater than or equal to 0"),
    ),
    Case(
        "a CA without TLS",
        _redis(hosts=["redis"], tls={"caSecretRef": {"name": "redis-ca"}}),
        _taskqueue_is(
            "spec.redis.tls.caSecretRef: Forbidden: caSecretRef is for TLS; write enabled: true beside it, or remove it"
        ),
    ),
    Case(
        "a Secret of another namespace",
        _redis(secretRef={"name": "token", "namespace": "kube-system"}),
        _unknown("TaskQueue", "spec.redis.secretRef.namespace"),
    ),
    Case(
        "a Secret of another namespace by its name",
        _redis(secretRef={"name": "kube-system/token"}),
        _taskqueue_is(_mismatch("spec.redis.secretRef.name", "kube-system/token", _OBJECT_RULE)),
    ),
    Case(
        "a CA of another namespace",
        _redis(hosts=["redis"], tls={"enabled": True, "caSecretRef": {"name": "ca", "namespace": "kube-system"}}),
        _unknown("TaskQueue", "spec.redis.tls.caSecretRef.namespace"),
    ),
    Case(
        "a password in plain sight",
        _redis(hosts=["redis"], password="secret"),
        _unknown("TaskQueue", "spec.redis.password"),
    ),
    # ── changes ──────────────────────────────────────────────────────────────────────────────────────
    Case(
        "the tenant is changed",
        taskqueue(tenant="b"),
        _taskqueue_is(
            "spec.tenant: Forbidden: tenant cannot be changed, added or removed, because the tasks would be "
            "left behind under the old one; keep it as it was, or apply a TaskQueue with another name beside "
            "this one"
        ),
        taskqueue(tenant="a"),
    ),
    Case(
        "a tenant is added",
        taskqueue(tenant="b"),
        _taskqueue_is(
            "spec.tenant: Forbidden: tenant cannot be changed, added or removed, because the tasks would be "
            "left behind under the old one; keep it as it was, or apply a TaskQueue with another name beside "
            "this one"
        ),
        taskqueue(),
    ),
    Case(
        "the tenant is removed",
        taskqueue(),
        _taskqueue_is(
            "spec.tenant: Forbidden: tenant cannot be changed, added or removed, because the tasks would be "
            "left behind under the old one; keep it as it was, or apply a TaskQueue with another name beside "
            "this one"
        ),
        taskqueue(tenant="a"),
    ),
    Case(
        "the queue is changed",
        taskqueue(queue="b"),
        _taskqueue_is(
            "spec.queue: Forbidden: queue cannot be changed, because its tasks would be left behind under the "
            "old name; keep it as it was, or apply a TaskQueue with another name beside this one"
        ),
        taskqueue(queue="a"),
    ),
    Case(
        "another queue is added",
        taskqueue(queue="b"),
        _taskqueue_is(
            "spec.queue: Forbidden: queue cannot be changed, because its tasks would be left behind under the "
            "old name; keep it as it was, or apply a TaskQueue with another name beside this one"
        ),
        taskqueue(),
    ),
    Case(
        "the queue is removed",
        taskqueue(),
        _taskqueue_is(
            "spec.queue: Forbidden: queue cannot be changed, because its tasks would be left behind under the "
            "old name; keep it as it was, or apply a TaskQueue with another name beside this one"
        ),
        taskqueue(queue="a"),
    ),
    Case(
        "the mode is changed",
        _redis(mode="Cluster", hosts=["redis"]),
        _taskqueue_is(
            "spec.redis.mode: Forbidden: mode cannot be changed, because the tasks would be left behind on the "
            "old server; keep it as it was, or apply a TaskQueue with another name beside this one"
        ),
        _redis(hosts=["redis"]),
    ),
    Case(
        "the hosts are changed",
        _redis(hosts=["other"]),
        _taskqueue_is(
            "spec.redis.hosts: Forbidden: hosts cannot be changed, added or removed, because the tasks would "
            "be left behind on the old server; keep them as they were, or apply a TaskQueue with another name "
            "beside this one"
        ),
        _redis(hosts=["redis"]),
    ),
    Case(
        "the hosts are replaced by a URL",
        _redis(secretRef={"name": "a"}),
        _taskqueue_is(
            "spec.redis.hosts: Forbidden: hosts cannot be changed, added or removed, because the tasks would "
            "be left behind on the old server; keep them as they were, or apply a TaskQueue with another name "
            "beside this one"
        ),
        _redis(hosts=["redis"], secretRef={"name": "a"}),
    ),
    Case(
        "the database is changed",
        _redis(hosts=["redis"], db=1),
        _taskqueue_is(
            "spec.redis.db: Forbidden: db cannot be changed, because the tasks would be left behind in the old "
            "database; keep it as it was, or apply a TaskQueue with another name beside this one"
        ),
        _redis(hosts=["redis"]),
    ),
    Case(
        "the Sentinel service is changed",
        _redis(mode="Sentinel", hosts=["s"], sentinelService="b"),
        _taskqueue_is(
            "spec.redis.sentinelService: Forbidden: sentinelService cannot be changed, added or removed, "
            "because the tasks would be left behind on the old server; keep it as it was, or apply a TaskQueue "
            "with another name beside this one"
        ),
        _redis(mode="Sentinel", hosts=["s"], sentinelService="a"),
    ),
    Case(
        "the Secret is changed",
        _redis(secretRef={"name": "b"}),
        _taskqueue_is(
            "spec.redis.secretRef: Forbidden: secretRef cannot be changed, added or removed, because the tasks "
            "would be left behind on the old server; keep it and change the contents of the Secret, or apply a "
            "TaskQueue with another name"
        ),
        _redis(secretRef={"name": "a"}),
    ),
    Case(
        "a Secret is added",
        _redis(hosts=["redis"], secretRef={"name": "a"}),
        _taskqueue_is(
            "spec.redis.secretRef: Forbidden: secretRef cannot be changed, added or removed, because the tasks "
            "would be left behind on the old server; keep it and change the contents of the Secret, or apply a "
            "TaskQueue with another name"
        ),
        _redis(hosts=["redis"]),
    ),
    Case(
        "a change to a level that contradicts",
        taskqueue(defaultLevel="low", levels=[{"name": "high"}]),
        _taskqueue_is(
            "spec.defaultLevel: Forbidden: there is no level low; write the name of one of the levels, or remove it"
        ),
        taskqueue(defaultLevel="low"),
    ),
)

WORKERPOOL_CASES = (
    # ── which tasks ──────────────────────────────────────────────────────────────────────────────────
    Case(
        "everything is missing",
        workerpool(queues=None, image=None, tasks=None),
        _workerpool_is(
            "spec.queues: Required value", "spec.image: Required value", "spec.tasks: Required value", _SKIPPED
        ),
    ),
    Case(
        "no queues",
        workerpool(queues=[]),
        _workerpool_is("spec.queues: Invalid value: 0: spec.queues in body should have at least 1 items"),
    ),
    Case(
        "too many queues",
        workerpool(queues=[f"q{n}" for n in range(17)]),
        _workerpool_is("spec.queues: Too many: 17: must have at most 16 items", _SKIPPED),
    ),
    Case(
        "a queue twice",
        workerpool(queues=["orders", "mails", "orders"]),
        _workerpool_is('spec.queues: Invalid value: "array": queue orders is named twice; remove one of the two'),
    ),
    Case(
        "a queue of another namespace",
        workerpool(queues=["payments/orders"]),
        _workerpool_is(_mismatch("spec.queues[0]", "payments/orders", _NAME_RULE)),
    ),
    Case(
        "queues is a text",
        workerpool(queues="orders"),
        _workerpool_is(
            'spec.queues: Invalid value: "string": spec.queues in body must be of type array: "string"', _SKIPPED
        ),
    ),
    Case(
        "an image with a blank",
        workerpool(image="shop:1 --privileged"),
        _workerpool_is(
            'spec.image: Invalid value: "string": an image has no blanks in its name; write it as in image: '
            "shop/worker:1.4"
        ),
    ),
    Case(
        "an empty image",
        workerpool(image=""),
        _workerpool_is('spec.image: Invalid value: "": spec.image in body should be at least 1 chars long'),
    ),
    Case(
        "an unknown pull policy",
        workerpool(imagePullPolicy="Sometimes"),
        _workerpool_is(
            'spec.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
            _SKIPPED,
        ),
    ),
    Case(
        "tasks without an attribute",
        workerpool(tasks="shop.tasks"),
        _workerpool_is('spec.tasks: Invalid value: "string": write module:attribute, as in tasks: shop.tasks:app'),
    ),
    Case(
        "tasks that are an option",
        workerpool(tasks="--help"),
        _workerpool_is('spec.tasks: Invalid value: "string": write module:attribute, as in tasks: shop.tasks:app'),
    ),
    Case(
        "tasks that are a command",
        workerpool(tasks="shop:app; rm -rf /"),
        _workerpool_is('spec.tasks: Invalid value: "string": write module:attribute, as in tasks: shop.tasks:app'),
    ),
    Case(
        "no concurrency",
        workerpool(concurrency=0),
        _workerpool_is(
            "spec.concurrency: Invalid value: 0: spec.concurrency in body should be greater than or equal to 1"
        ),
    ),
    Case(
        "a capability twice",
        workerpool(capabilities=["gpu", "gpu"]),
        _workerpool_is(
            'spec.capabilities: Invalid value: "array": capability gpu is named twice; remove one of the two'
        ),
    ),
    Case(
        "a capability with a comma",
        workerpool(capabilities=["gpu,large"]),
        _workerpool_is(_mismatch("spec.capabilities[0]", "gpu,large", _NAME_RULE)),
    ),
    Case(
        "a name that makes pods' names too long",
        workerpool("p" * 38),
        _workerpool_is(
            'metadata.name: Invalid value: "string": the name of a WorkerPool has at most 37 characters, so '
            "that a pod's name, which begins with it, fits into a host name; choose a shorter one",
            name="p" * 38,
        ),
    ),
    Case(
        "a name with a dot",
        workerpool("a.b"),
        _workerpool_is(
            'metadata.name: Invalid value: "string": the name of a WorkerPool becomes part of host names and '
            "has no dots; write '-' instead",
            name="a.b",
        ),
    ),
    # ── how many ─────────────────────────────────────────────────────────────────────────────────────
    Case(
        "more at least than at most",
        workerpool(minReplicas=5, maxReplicas=3),
        _workerpool_is(
            "spec.minReplicas: Forbidden: minReplicas is above maxReplicas (which is 10 unless you say "
            "otherwise); write a smaller one, or a larger maxReplicas"
        ),
    ),
    Case(
        "more at least than at most by default",
        workerpool(minReplicas=11),
        _workerpool_is(
            "spec.minReplicas: Forbidden: minReplicas is above maxReplicas (which is 10 unless you say "
            "otherwise); write a smaller one, or a larger maxReplicas"
        ),
    ),
    Case(
        "fewer than none",
        workerpool(minReplicas=-1),
        _workerpool_is(
            "spec.minReplicas: Invalid value: -1: spec.minReplicas in body should be greater than or equal to 0"
        ),
    ),
    Case(
        "half a worker",
        workerpool(replicas=1.5),
        _workerpool_is(
            'spec.replicas: Invalid value: "number": spec.replicas in body must be of type integer: "number"',
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 1.5 is of the type float64, "
            "expected int64",
            _SKIPPED,
        ),
    ),
    Case(
        "a million workers",
        workerpool(maxReplicas=1_000_000),
        _workerpool_is(
            "spec.maxReplicas: Invalid value: 1000000: spec.maxReplicas in body should be less than or equal to 1000"
        ),
    ),
    Case(
        "a negative grace period",
        workerpool(graceSeconds=-1),
        _workerpool_is(
            "spec.graceSeconds: Invalid value: -1: spec.graceSeconds in body should be greater than or equal to 0"
        ),
    ),
    Case(
        "no time to drain",
        workerpool(targetDrainSeconds=0),
        _workerpool_is(
            "spec.targetDrainSeconds: Invalid value: 0: spec.targetDrainSeconds in body should be greater than 0"
        ),
    ),
    Case(
        "no weight",
        workerpool(weight=0),
        _workerpool_is("spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1"),
    ),
    Case(
        "a weight that is a fraction",
        workerpool(weight=1.5),
        _workerpool_is(
            'spec.weight: Invalid value: "number": spec.weight in body must be of type integer: "number"', _SKIPPED
        ),
    ),
    Case(
        "workers that are expected to do nothing",
        workerpool(backlogPerWorker=0),
        _workerpool_is(
            "spec.backlogPerWorker: Invalid value: 0: spec.backlogPerWorker in body should be greater than 0"
        ),
    ),
    Case(
        "workers that are expected to do everything",
        workerpool(backlogPerWorker=1_000_001),
        _workerpool_is(
            "spec.backlogPerWorker: Invalid value: 1000001: spec.backlogPerWorker in body should be less than or equal "
            "to 1000000"
        ),
    ),
    Case(
        "a target for no level",
        workerpool(levelTargets=[{"targetDrainSeconds": 5}]),
        _workerpool_is("spec.levelTargets[0].level: Required value", _SKIPPED),
    ),
    Case(
        "a level with no target",
        workerpool(levelTargets=[{"level": "high"}]),
        _workerpool_is("spec.levelTargets[0].targetDrainSeconds: Required value", _SKIPPED),
    ),
    Case(
        "a level with two targets",
        workerpool(levelTargets=[{"level": "high", "targetDrainSeconds": n} for n in (5, 6)]),
        _workerpool_is('spec.levelTargets[1]: Duplicate value: {"level":"high"}'),
    ),
    Case(
        "a target for a level in capitals",
        workerpool(levelTargets=[{"level": "High", "targetDrainSeconds": 5}]),
        _workerpool_is(_mismatch("spec.levelTargets[0].level", "High", _NAME_RULE)),
    ),
    Case(
        "a level that shall begin at once",
        workerpool(levelTargets=[{"level": "high", "targetDrainSeconds": 0}]),
        _workerpool_is(
            "spec.levelTargets[0].targetDrainSeconds: Invalid value: 0: spec.levelTargets[0].targetDrainSeconds in "
            "body should be greater than 0"
        ),
    ),
    Case(
        "targets for too many levels",
        workerpool(levelTargets=[{"level": f"l{n}", "targetDrainSeconds": 5} for n in range(33)]),
        _workerpool_is("spec.levelTargets: Too many: 33: must have at most 32 items", _SKIPPED),
    ),
    Case(
        "a limit without a number",
        workerpool(scaleUpLimit={"seconds": 10}),
        _workerpool_is("spec.scaleUpLimit.pods: Required value", _SKIPPED),
    ),
    Case(
        "a limit that lets no worker in",
        workerpool(scaleUpLimit={"pods": 0}),
        _workerpool_is(
            "spec.scaleUpLimit.pods: Invalid value: 0: spec.scaleUpLimit.pods in body should be greater than or equal "
            "to 1"
        ),
    ),
    Case(
        "a limit within no time",
        workerpool(scaleDownLimit={"pods": 1, "seconds": 0}),
        _workerpool_is(
            "spec.scaleDownLimit.seconds: Invalid value: 0: spec.scaleDownLimit.seconds in body should be greater "
            "than 0"
        ),
    ),
    Case(
        "a limit within more than a day",
        workerpool(scaleDownLimit={"pods": 1, "seconds": 86_401}),
        _workerpool_is(
            "spec.scaleDownLimit.seconds: Invalid value: 86401: spec.scaleDownLimit.seconds in body should be less "
            "than or equal to 86400"
        ),
    ),
    Case(
        "a limit in percent",
        workerpool(scaleUpLimit={"percent": 10, "pods": 1}),
        _unknown("WorkerPool", "spec.scaleUpLimit.percent"),
    ),
    # ── reaching out ─────────────────────────────────────────────────────────────────────────────────
    Case(
        "a folder of the node",
        _template(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
        _unknown("WorkerPool", "spec.template.volumes[0].hostPath"),
    ),
    Case("the node's network", _template(hostNetwork=True), _unknown("WorkerPool", "spec.template.hostNetwork")),
    Case("the node's processes", _template(hostPID=True), _unknown("WorkerPool", "spec.template.hostPID")),
    Case("privileges", _template(privileged=True), _unknown("WorkerPool", "spec.template.privileged")),
    Case(
        "a security context",
        _template(securityContext={"privileged": True, "runAsUser": 0}),
        _unknown("WorkerPool", "spec.template.securityContext"),
    ),
    Case(
        "a whole pod",
        _template(spec={"containers": [{"name": "x", "image": "x"}]}),
        _unknown("WorkerPool", "spec.template.spec"),
    ),
    Case(
        "a container before the worker",
        _template(initContainers=[{"name": "x", "image": "x"}]),
        _unknown("WorkerPool", "spec.template.initContainers"),
    ),
    Case("a command", workerpool(command=["sh"]), _unknown("WorkerPool", "spec.command")),
    Case("a node by name", _template(nodeName="control-plane"), _unknown("WorkerPool", "spec.template.nodeName")),
    Case(
        "another account's token as a volume",
        _template(volumes=[{"name": "t", "projected": {"sources": []}}]),
        _unknown("WorkerPool", "spec.template.volumes[0].projected"),
    ),
    Case(
        "an account of another namespace",
        _template(serviceAccountName="kube-system:default"),
        _workerpool_is(_mismatch("spec.template.serviceAccountName", "kube-system:default", _OBJECT_RULE)),
    ),
    Case(
        "a Secret of another namespace in a variable",
        _template(
            env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b", "namespace": "kube-system"}}}]
        ),
        _unknown("WorkerPool", "spec.template.env[0].valueFrom.secretKeyRef.namespace"),
    ),
    Case(
        "a Secret of another namespace for all variables",
        _template(envFrom=[{"secretRef": {"name": "kube-system/token"}}]),
        _workerpool_is(_mismatch("spec.template.envFrom[0].secretRef.name", "kube-system/token", _OBJECT_RULE)),
    ),
    Case(
        "the priority of the cluster's own pods",
        _template(priorityClassName="system-node-critical"),
        _workerpool_is(
            "spec.template.priorityClassName: Forbidden: priority classes that begin with system- are for the "
            "cluster's own pods; name one that was made for your workers"
        ),
    ),
    # ── variables ────────────────────────────────────────────────────────────────────────────────────
    Case(
        "a variable of the operator",
        _template(env=[{"name": "HEADRACE_REDIS_URL", "value": "redis://elsewhere"}]),
        _workerpool_is(
            "spec.template.env[0].name: Forbidden: variables that begin with HEADRACE_ are set by the "
            "operator; Redis and the tenant come from the TaskQueue"
        ),
    ),
    Case(
        "a variable with two values",
        _template(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        _workerpool_is(
            'spec.template.env[0]: Invalid value: "object": write either value or valueFrom, and one of them only'
        ),
    ),
    Case(
        "a variable without a value",
        _template(env=[{"name": "A"}]),
        _workerpool_is(
            'spec.template.env[0]: Invalid value: "object": write either value or valueFrom, and one of them only'
        ),
    ),
    Case(
        "a variable twice",
        _template(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        _workerpool_is('spec.template.env[1]: Duplicate value: {"name":"A"}'),
    ),
    Case(
        "a variable with an equals sign",
        _template(env=[{"name": "A=B", "value": "1"}]),
        _workerpool_is(_mismatch("spec.template.env[0].name", "A=B", r"^[a-zA-Z_][-._a-zA-Z0-9]*$")),
    ),
    Case(
        "a variable from two places",
        _template(
            env=[
                {
                    "name": "A",
                    "valueFrom": {
                        "secretKeyRef": {"name": "a", "key": "b"},
                        "configMapKeyRef": {"name": "a", "key": "b"},
                    },
                }
            ]
        ),
        _workerpool_is(
            'spec.template.env[0].valueFrom: Invalid value: "object": write one of secretKeyRef, '
            "configMapKeyRef and fieldRef, and one of them only"
        ),
    ),
    Case(
        "a variable from an unknown field",
        _template(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}}]),
        _workerpool_is(
            _mismatch(
                "spec.template.env[0].valueFrom.fieldRef.fieldPath",
                "spec.containers",
                r"^(metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[^']+'\]|spec\.(nodeName|serviceAccountName)|status\.(podIPs?|hostIPs?))$",
            )
        ),
    ),
    Case(
        "all variables from two places",
        _template(envFrom=[{"secretRef": {"name": "a"}, "configMapRef": {"name": "a"}}]),
        _workerpool_is(
            'spec.template.envFrom[0]: Invalid value: "object": write either secretRef or configMapRef, and '
            "one of them only"
        ),
    ),
    Case(
        "a thousand variables",
        _template(env=[{"name": f"A{n}", "value": ""} for n in range(1000)]),
        _workerpool_is("spec.template.env: Too many: 1000: must have at most 128 items", _SKIPPED),
    ),
    # ── labels ───────────────────────────────────────────────────────────────────────────────────────
    Case(
        "a label of the operator",
        _template(labels={"headrace.dev/pool": "other"}),
        _workerpool_is(
            "spec.template.labels: Forbidden: labels under headrace.dev/, app.kubernetes.io/ and "
            "kubernetes.io/ are set by the operator and by Kubernetes; use a prefix of your own, as in "
            "shop.example/team"
        ),
    ),
    Case(
        "a label that names the app",
        _template(labels={"app.kubernetes.io/managed-by": "me"}),
        _workerpool_is(
            "spec.template.labels: Forbidden: labels under headrace.dev/, app.kubernetes.io/ and "
            "kubernetes.io/ are set by the operator and by Kubernetes; use a prefix of your own, as in "
            "shop.example/team"
        ),
    ),
    Case(
        "a label of Kubernetes",
        _template(labels={"kubernetes.io/os": "windows"}),
        _workerpool_is(
            "spec.template.labels: Forbidden: labels under headrace.dev/, app.kubernetes.io/ and "
            "kubernetes.io/ are set by the operator and by Kubernetes; use a prefix of your own, as in "
            "shop.example/team"
        ),
    ),
    Case(
        "a label's value with a blank",
        _template(labels={"team": "the shop"}),
        _workerpool_is(
            _mismatch("spec.template.labels.team", "the shop", r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
        ),
    ),
    Case(
        "an annotation of the operator",
        _template(annotations={"headrace.dev/revision": "1"}),
        _workerpool_is(
            "spec.template.annotations: Forbidden: annotations under headrace.dev/, app.kubernetes.io/, "
            "kubernetes.io/, controller.kubernetes.io/ and container.apparmor.security.beta.kubernetes.io/ are "
            "set by the operator and by Kubernetes; use a prefix of your own, as in shop.example/team"
        ),
    ),
    Case(
        "an annotation that spares a pod",
        _template(annotations={"controller.kubernetes.io/pod-deletion-cost": "9"}),
        _workerpool_is(
            "spec.template.annotations: Forbidden: annotations under headrace.dev/, app.kubernetes.io/, "
            "kubernetes.io/, controller.kubernetes.io/ and container.apparmor.security.beta.kubernetes.io/ are "
            "set by the operator and by Kubernetes; use a prefix of your own, as in shop.example/team"
        ),
    ),
    # ── resources ────────────────────────────────────────────────────────────────────────────────────
    Case(
        "a request above its limit",
        _template(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
        _workerpool_is(
            "spec.template.resources.requests: Forbidden: a request is above its limit; lower the request, or "
            "raise the limit"
        ),
    ),
    Case(
        "an amount that is none",
        _template(resources={"limits": {"memory": "much"}}),
        _workerpool_is(
            _mismatch(
                "spec.template.resources.limits.memory",
                "much",
                r"^[0-9]+([.][0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]+)?$",
            )
        ),
    ),
    Case(
        "a negative amount",
        _template(resources={"limits": {"cpu": -1}}),
        _workerpool_is(
            "spec.template.resources.limits.cpu: Invalid value: -1: spec.template.resources.limits.cpu in body "
            "should be greater than or equal to 0"
        ),
    ),
    Case(
        "a toleration of any value and of one",
        _template(tolerations=[{"key": "pool", "operator": "Exists", "value": "batch"}]),
        _workerpool_is(
            "spec.template.tolerations[0].value: Forbidden: operator: Exists asks for no value; remove value, or write "
            "operator: Equal"
        ),
    ),
    Case(
        "a toleration that ends although nothing is evicted",
        _template(tolerations=[{"operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 60}]),
        _workerpool_is(
            "spec.template.tolerations[0].tolerationSeconds: Forbidden: tolerationSeconds is for effect: NoExecute; "
            "write that, or remove it"
        ),
    ),
    Case(
        "a toleration of a value without its key",
        _template(tolerations=[{"value": "batch"}]),
        _workerpool_is(
            "spec.template.tolerations[0].key: Forbidden: operator: Equal compares the value of a key; write "
            "the key, or operator: Exists"
        ),
    ),
    # ── volumes ──────────────────────────────────────────────────────────────────────────────────────
    Case(
        "a volume with two sources",
        _template(volumes=[{"name": "a", "emptyDir": {}, "secret": {"secretName": "a"}}]),
        _workerpool_is(
            'spec.template.volumes[0]: Invalid value: "object": a volume has exactly one source; write one of '
            "configMap, secret, emptyDir and persistentVolumeClaim"
        ),
    ),
    Case(
        "a volume without a source",
        _template(volumes=[{"name": "a"}]),
        _workerpool_is(
            'spec.template.volumes[0]: Invalid value: "object": a volume has exactly one source; write one of '
            "configMap, secret, emptyDir and persistentVolumeClaim"
        ),
    ),
    Case(
        "a volume of the operator",
        _template(volumes=[{"name": "headrace-tmp", "emptyDir": {}}]),
        _workerpool_is(
            "spec.template.volumes[0].name: Forbidden: volumes that begin with headrace- are the operator's; "
            "choose another name"
        ),
    ),
    Case(
        "two volumes of the same name",
        _template(volumes=[{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
        _workerpool_is('spec.template.volumes[1]: Duplicate value: {"name":"a"}'),
    ),
    Case(
        "a mount of no volume",
        _template(volumeMounts=[{"name": "a", "mountPath": "/a"}]),
        _workerpool_is(
            "spec.template.volumeMounts: Forbidden: there is no volume a; add it to volumes, or remove the mount"
        ),
    ),
    Case(
        "two mounts at one place",
        _template(
            volumes=[{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}],
            volumeMounts=[{"name": "a", "mountPath": "/data"}, {"name": "b", "mountPath": "/data"}],
        ),
        _workerpool_is('spec.template.volumeMounts[1]: Duplicate value: {"mountPath":"/data"}'),
    ),
    Case(
        "a mount over the operator's files",
        _mount("/etc/headrace/redis-tls"),
        _workerpool_is(
            "spec.template.volumeMounts[0].mountPath: Forbidden: /tmp, /etc/headrace and what is below the "
            "latter are the operator's; mount it elsewhere, as at /etc/shop"
        ),
    ),
    Case(
        "a mount over /tmp",
        _mount("/tmp"),
        _workerpool_is(
            "spec.template.volumeMounts[0].mountPath: Forbidden: /tmp, /etc/headrace and what is below the "
            "latter are the operator's; mount it elsewhere, as at /etc/shop"
        ),
    ),
    Case(
        "a mount over everything",
        _mount("/"),
        _workerpool_is(
            'spec.template.volumeMounts[0].mountPath: Invalid value: "string": write an absolute path below /, '
            "without ':', '..', '.' and a slash too many, as in /etc/shop"
        ),
    ),
    Case(
        "a mount by a detour",
        _mount("/data/../etc/headrace"),
        _workerpool_is(
            'spec.template.volumeMounts[0].mountPath: Invalid value: "string": write an absolute path below /, '
            "without ':', '..', '.' and a slash too many, as in /etc/shop"
        ),
    ),
    Case(
        "a mount with a doubled slash",
        _mount("//etc/headrace"),
        _workerpool_is(
            'spec.template.volumeMounts[0].mountPath: Invalid value: "string": write an absolute path below /, '
            "without ':', '..', '.' and a slash too many, as in /etc/shop"
        ),
    ),
    Case(
        "a mount with a colon",
        _mount("/data:/etc"),
        _workerpool_is(
            'spec.template.volumeMounts[0].mountPath: Invalid value: "string": write an absolute path below /, '
            "without ':', '..', '.' and a slash too many, as in /etc/shop"
        ),
    ),
    Case(
        "a mount at a relative path",
        _mount("data"),
        _workerpool_is(
            'spec.template.volumeMounts[0].mountPath: Invalid value: "string": write an absolute path below /, '
            "without ':', '..', '.' and a slash too many, as in /etc/shop"
        ),
    ),
    Case(
        "a path that leaves its volume",
        _mount("/data", subPath="../../etc"),
        _workerpool_is(
            'spec.template.volumeMounts[0].subPath: Invalid value: "string": write a relative path without '
            "'..', as in settings/shop.toml"
        ),
    ),
)

CASES = TASKQUEUE_CASES + WORKERPOOL_CASES
