"""The custom resource definitions: what they say, what they fill in, and what they let in."""

from __future__ import annotations

import importlib
import json
import re
import secrets
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from headrace import QueueConfig
from headrace.model.config import DEFAULT_LEVELS, MAX_DURATION_S, MAX_LEVELS, Level, Promotion
from headrace.model.names import MAX_NAME_CHARS
from headrace_operator.scaling import Figures, StepLimit, decide
from headrace_operator.status import MAX_RECENT_DECISIONS, decision_status
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.operator.builders import level_load, pool_figures, queue_load
from tests.operator.manifest_cases import API_VERSION, CASES, NAME, Case, taskqueue, workerpool
from tests.support.kubernetes import Namespace

ROOT = Path(__file__).parents[2]
SEEDS = {
    "000": ("seed_000_weighted_lists", ("CONFIG",)),
    "001": ("seed_001_spool", ("CONFIG",)),
    "002": ("seed_002_tenants", ("CONFIG",)),
    "003": ("seed_003_agreed_design", ("CONFIG",)),
    "004": ("seed_004_titanqueue", ("CONFIG_WEIGHTED", "CONFIG_STRICT")),
}
Schema = dict[str, Any]

# Everything that a manifest can say. The sources of variables and volumes exclude each other, so there are several.
FULL_TASKQUEUE: dict[str, Any] = {
    "tenant": "shop",
    "queue": "orders-v2",
    "redis": {
        "mode": "Sentinel",
        "hosts": ["sentinel-0.sentinel:26379", "10.0.0.7", "[fd00::7]:26379"],
        "db": 2,
        "sentinelService": "mymaster",
        "tls": {"enabled": True, "caSecretRef": {"name": "redis-ca", "key": "tls.crt"}, "checkHostname": False},
        "secretRef": {"name": "orders-redis"},
    },
    "levels": [
        {"name": "high", "weight": 2.5, "maxRetries": 5, "timeoutSeconds": 0.5},
        {"name": "medium", "weight": 1, "maxRetries": 0, "timeoutSeconds": 300},
        {
            "name": "low",
            "weight": 0.5,
            "maxRetries": 1000,
            "timeoutSeconds": 300,
            "promoteAfterSeconds": 600.5,
            "promoteTo": "high",
            "promoteBatch": 7,
        },
    ],
    "defaultLevel": "low",
    "selection": "Weighted",
    "antiStarvation": {"boosts": [{"afterSeconds": 0, "factor": 1.5}, {"afterSeconds": 30, "factor": 0.5}]},
    "promotion": {"intervalSeconds": 15},
    "lease": {
        "seconds": 6,
        "heartbeatSeconds": 3,
        "workerDeadAfterSeconds": 6,
        "maxCrashes": 1,
        "repairLimit": 5,
    },
    "retry": {"baseSeconds": 0, "maxSeconds": 0, "jitter": 1, "timeoutFactor": 10},
    "retention": {"resultSeconds": 0, "deadLetterSeconds": 0, "idempotencySeconds": 0.5, "maxEvents": 0},
    "limits": {"maxPayloadBytes": 1, "maxDelaySeconds": 0.5},
    "paused": True,
    "deletionPolicy": "Purge",
}
FULL_WORKERPOOL: dict[str, Any] = {
    "queues": ["orders", "mails.eu"],
    "image": "shop/worker@sha256:" + "0" * 64,
    "imagePullPolicy": "Always",
    "tasks": "shop.tasks:app",
    "concurrency": 20,
    "capabilities": ["gpu", "large"],
    "minReplicas": 2,
    "maxReplicas": 2,
    "replicas": 3,
    "idleSeconds": 0,
    "targetDrainSeconds": 0.5,
    "levelTargets": [{"level": "high", "targetDrainSeconds": 0.5}, {"level": "low", "targetDrainSeconds": 600}],
    "backlogPerWorker": 0.5,
    "weight": 3,
    "scaleUpLimit": {"pods": 1000, "seconds": 0.5},
    "scaleDownLimit": {"pods": 1, "seconds": 86400},
    "graceSeconds": 0,
    "paused": True,
    "template": {
        "labels": {"shop.example/team": "orders", "empty": ""},
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        "resources": {
            "requests": {"cpu": "250m", "memory": "0.5Gi", "nvidia.com/gpu": 1},
            "limits": {"memory": "512Mi", "nvidia.com/gpu": "1"},
        },
        "env": [
            {"name": "PLAIN", "value": ""},
            {
                "name": "SECRET",
                "valueFrom": {"secretKeyRef": {"name": "shop", "key": "password", "optional": True}},
            },
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": "mode", "optional": True}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['shop.example/team']"}}},
        ],
        "envFrom": [{"secretRef": {"name": "shop"}}, {"configMapRef": {"name": "shop"}}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [
            {"key": "batch", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60},
            {"operator": "Exists"},
        ],
        "priorityClassName": "batch",
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "shop",
        "volumes": [
            {"name": "map", "configMap": {"name": "shop", "optional": True, "defaultMode": 288}},
            {"name": "secret", "secret": {"secretName": "shop", "optional": True, "defaultMode": 288}},
            {"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "shop", "readOnly": True}},
        ],
        "volumeMounts": [
            {"name": "map", "mountPath": "/etc/shop", "readOnly": True, "subPath": "conf"},
            {"name": "cache", "mountPath": "/etc/headrace-like"},
            {"name": "data", "mountPath": "/tmp/..data"},
        ],
    },
}
FULL = {"taskqueues": FULL_TASKQUEUE, "workerpools": FULL_WORKERPOOL}
KINDS = tuple(FULL)

_CONDITION = {
    "type": "Ready",
    "status": "False",
    "observedGeneration": 3,
    "lastTransitionTime": "2030-01-31T12:00:00Z",
    "reason": "SecretIncomplete",
    "message": "Secret orders-redis has no key 'url'",
}
_DECISION = {
    "time": "2030-01-31T12:00:00Z",
    "from": 1,
    "replicas": 3,
    "reason": "Backlog",
    "message": "3 workers are needed: 25 tasks wait, 0 execute",
}
FULL_STATUS: dict[str, dict[str, Any]] = {
    "taskqueues": {
        "observedGeneration": 3,
        "conditions": [_CONDITION],
        "depth": 12,
        "executing": 5,
        "delayed": 4,
        "dead": 1,
        "oldestTime": "2030-01-31T12:00:00Z",
        "levels": [{"name": "high", "depth": 12, "oldestTime": "2030-01-31T12:00:00Z"}],
        "workers": {"active": 2, "draining": 1, "dead": 0},
        "completedPerMinute": 60,
        "failedPerMinute": 0.5,
        "promoted": 7,
        "paused": False,
    },
    "workerpools": {
        "observedGeneration": 3,
        "conditions": [_CONDITION],
        "desiredReplicas": 3,
        "replicas": 3,
        "readyReplicas": 2,
        "busy": 1,
        "idle": 1,
        "draining": 1,
        "lastDecision": _DECISION | {"need": 3, "inputs": {"queues": [{"queue": "orders"}], "replicas": 1}},
        "recentDecisions": [_DECISION],
        "selector": "headrace.dev/pool=orders",
        "revision": "0123abcd",
        "revisions": [{"revision": "0123abcd", "replicas": 3, "ready": 2}],
    },
}


# ── reading the definitions ──────────────────────────────────────────────────────────────────────────


def definition(plural: str) -> dict[str, Any]:
    """A CRD, as it is in the repository."""
    return yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text())


def version_of(plural: str) -> dict[str, Any]:
    """Its one version."""
    (version,) = definition(plural)["spec"]["versions"]
    return version


def schema_of(plural: str) -> Schema:
    return version_of(plural)["schema"]["openAPIV3Schema"]


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """The schema and all below it, each with its path: ``.spec.levels[].name``."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from fields(inner, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], f"{path}{{}}")


def defaulted(schema: Schema, value: Any) -> Any:
    """The value with the schema's defaults filled in, as the API server does it."""
    value = deepcopy(value)
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = inner["default"]
            if name in value:
                value[name] = defaulted(inner, value[name])
    if isinstance(value, list):
        value = [defaulted(schema["items"], item) for item in value]
    return value


def spec_with_defaults(plural: str, spec: dict[str, Any]) -> dict[str, Any]:
    return defaulted(schema_of(plural)["properties"]["spec"], spec)


def _as_written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def manifests(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def seed_manifests(number: str) -> list[dict[str, Any]]:
    return manifests(ROOT / "examples" / f"taskqueue-seed-{number}.yaml")


def as_stored(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest as the API server returns it."""
    plural = f"{manifest['kind'].lower()}s"
    metadata = {
        "namespace": "shop",
        "uid": "00000000-0000-0000-0000-000000000000",
        "generation": 1,
        "creationTimestamp": "2030-01-31T12:00:00Z",
    }
    return manifest | {
        "metadata": manifest["metadata"] | metadata,
        "spec": spec_with_defaults(plural, manifest["spec"]),
    }


# ── without a cluster ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("plural", KINDS)
def test_every_field_is_described_in_sentences(plural):
    poor = [path for path, field in fields(schema_of(plural)) if not field.get("description", "").endswith(".")]
    assert poor == [".metadata"], "which is Kubernetes' own and must not be described"


@pytest.mark.parametrize("plural", KINDS)
def test_descriptions_tell_the_default(plural):
    """`kubectl explain` does not."""
    silent = [
        path
        for path, field in fields(schema_of(plural))
        if not isinstance(field.get("default", {}), (dict, list))
        and f"Default: {_as_written(field['default'])}." not in field["description"]
    ]
    assert silent == []


@pytest.mark.parametrize("plural", KINDS)
def test_everything_that_can_be_written_is_bounded(plural):
    """The API server reckons with the largest value when it decides whether a rule is cheap enough."""
    unbounded = [
        path
        for path, field in fields(schema_of(plural)["properties"]["spec"])
        if (field.get("type") == "string" and not field.keys() & {"maxLength", "enum"})
        or (field.get("type") == "array" and "maxItems" not in field)
        or ("additionalProperties" in field and "maxProperties" not in field)
        or (field.get("type") in ("integer", "number") and not {"minimum", "maximum"} <= field.keys())
    ]
    assert unbounded == []


@pytest.mark.parametrize("plural", KINDS)
def test_every_rule_says_what_to_write_instead(plural):
    rules = [rule for _, field in fields(schema_of(plural)) for rule in field.get("x-kubernetes-validations", ())]
    assert rules
    for rule in rules:
        assert len(rule["message"]) > 20
        assert "\n" not in rule["message"] + rule["rule"] + rule.get("messageExpression", "")


@pytest.mark.parametrize("plural", KINDS)
def test_every_rule_has_a_case_that_it_refuses(plural):
    def words_of(rule: dict[str, Any]) -> str:
        """Its message, or as much of it as is the same for every manifest."""
        literals = re.findall(r"'([^']*)'", rule.get("messageExpression", ""))
        return max(literals, key=len, default=rule["message"])

    answers = [case.error for case in CASES]
    rules = [rule for _, field in fields(schema_of(plural)) for rule in field.get("x-kubernetes-validations", ())]
    untried = [rule["rule"] for rule in rules if not any(words_of(rule) in answer for answer in answers)]
    assert untried == []


@pytest.mark.parametrize("plural", KINDS)
def test_names_follow_the_rule_for_names(plural):
    names = {
        "taskqueues": {".tenant", ".queue", ".levels[].name", ".levels[].promoteTo", ".defaultLevel"},
        "workerpools": {".queues[]", ".capabilities[]", ".levelTargets[].level"},
    }[plural]
    found = {path: field for path, field in fields(schema_of(plural)["properties"]["spec"]) if path in names}
    assert found.keys() == names
    for field in found.values():
        assert field["maxLength"] == MAX_NAME_CHARS
        assert field["pattern"] == "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"


@pytest.mark.parametrize("plural", KINDS)
def test_printer_columns_and_the_scale_show_fields_that_exist(plural):
    version = version_of(plural)
    known = {re.sub(r"\[\]", "", path) for path, _ in fields(schema_of(plural))} | {".metadata.creationTimestamp"}
    shown = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    shown += version["subresources"].get("scale", {}).values()
    assert [path for path in shown if re.sub(r"\[[^]]*\]", "", path) not in known] == []


@pytest.mark.parametrize("plural", KINDS)
def test_the_full_manifest_has_every_field(plural):
    """So that the test in a cluster shows for each of them that it is kept."""

    def said(value: Any, path: str = "") -> Iterator[str]:
        yield path
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from said(inner, f"{path}.{key}")
        if isinstance(value, list):
            for inner in value:
                yield from said(inner, f"{path}[]")

    for part, full in (("spec", FULL[plural]), ("status", FULL_STATUS[plural])):
        known = {path for path, _ in fields(schema_of(plural)["properties"][part]) if "{}" not in path}
        assert known - set(said(full)) == set()


def test_defaults_are_those_of_a_queue_configured_in_code():
    config = QueueConfig("orders")
    spec = spec_with_defaults("taskqueues", {"redis": {"hosts": ["redis:6379"]}})
    promotions = {rule.source: rule for rule in config.promotion_rules}
    levels = []
    for level in config.levels:
        written = {
            "name": level.name,
            "weight": level.weight,
            "maxRetries": level.max_retries,
            "timeoutSeconds": level.timeout_s,
        }
        if rule := promotions.get(level.name):
            written |= {"promoteAfterSeconds": rule.after_s, "promoteBatch": rule.batch}
        levels.append(written)
    # Without promoteTo a task goes up by one level, which is what the default promotions do.
    names = config.level_names()
    assert all(names.index(rule.source) - names.index(rule.target) == 1 for rule in config.promotion_rules)
    assert spec == {
        "redis": {
            "mode": "Standalone",
            "hosts": ["redis:6379"],
            "db": 0,
            "tls": {"enabled": False, "checkHostname": True},
        },
        "levels": levels,
        "selection": config.selection.capitalize(),
        "promotion": {"intervalSeconds": config.promotion_interval_s},
        "lease": {
            "seconds": config.lease_s,
            "heartbeatSeconds": config.heartbeat_s,
            "workerDeadAfterSeconds": config.worker_dead_after_s,
            "maxCrashes": config.max_crashes,
            "repairLimit": config.repair_limit,
        },
        "retry": {
            "baseSeconds": config.retry.base_s,
            "maxSeconds": config.retry.max_s,
            "jitter": config.retry.jitter,
            "timeoutFactor": config.retry.timeout_factor,
        },
        "retention": {
            "resultSeconds": config.result_retention_s,
            "deadLetterSeconds": config.dead_letter_retention_s,
            "idempotencySeconds": config.idempotency_window_s,
            "maxEvents": config.events_max,
        },
        "limits": {"maxPayloadBytes": config.max_payload_bytes, "maxDelaySeconds": config.max_delay_s},
        "deletionPolicy": "Retain",
    }


def test_a_level_of_your_own_has_the_defaults_of_one_in_code():
    levels = schema_of("taskqueues")["properties"]["spec"]["properties"]["levels"]
    level = Level("high")
    assert defaulted(levels["items"], {"name": "high"}) == {
        "name": "high",
        "weight": level.weight,
        "maxRetries": level.max_retries,
        "timeoutSeconds": level.timeout_s,
    }
    assert levels["maxItems"] == MAX_LEVELS
    # It cannot stand in the schema, because it is allowed beside promoteAfterSeconds only.
    batch = Promotion("low", "high", after_s=1).batch
    assert f"Without it, {batch}." in levels["items"]["properties"]["promoteBatch"]["description"]


def test_a_manifest_with_the_least_that_is_needed_is_a_queue_with_all_defaults():
    from headrace_operator.resources import TaskQueueResource

    resource = TaskQueueResource.from_body(as_stored(json.loads(taskqueue())))
    assert resource.config == QueueConfig(NAME)
    assert resource.config.levels == DEFAULT_LEVELS


def test_the_operator_can_read_all_that_can_be_said():
    from headrace_operator.resources import TaskQueueResource, WorkerPoolResource

    queue = TaskQueueResource.from_body(as_stored(json.loads(taskqueue(**FULL_TASKQUEUE))))
    assert (queue.tenant, queue.queue_name, queue.config.name) == ("shop", "orders-v2", "orders-v2")
    assert queue.config.promotion_rules == (Promotion("low", "high", after_s=600.5, batch=7),)
    assert queue.config.dead_letter_retention_s is None
    pool = WorkerPoolResource.from_body(as_stored(json.loads(workerpool(**FULL_WORKERPOOL))))
    assert pool.template == FULL_WORKERPOOL["template"]
    assert pool.level_targets_s == {"high": 0.5, "low": 600.0}
    assert (pool.scale_up_limit, pool.scale_down_limit) == (StepLimit(1000, 0.5), StepLimit(1, 86_400.0))


def test_a_pool_reads_the_same_whether_the_schema_has_filled_in_its_defaults_or_not():
    from headrace_operator.resources import WorkerPoolResource

    said = json.loads(workerpool(scaleUpLimit={"pods": 4}, scaleDownLimit={"pods": 1}))
    filled = as_stored(said)
    assert filled["spec"]["scaleUpLimit"] == {"pods": 4, "seconds": 60}
    assert WorkerPoolResource.from_body(filled) == WorkerPoolResource.from_body(filled | {"spec": said["spec"]})


def test_the_bounds_of_the_schema_are_those_of_the_reader():
    from headrace_operator import resources

    spec = schema_of("workerpools")["properties"]["spec"]["properties"]
    assert spec["weight"]["maximum"] == resources.MAX_WEIGHT
    assert spec["backlogPerWorker"]["maximum"] == resources.MAX_BACKLOG_PER_WORKER
    assert spec["levelTargets"]["maxItems"] == MAX_LEVELS
    assert spec["levelTargets"]["items"]["properties"]["targetDrainSeconds"]["maximum"] <= MAX_DURATION_S
    for limit in (spec["scaleUpLimit"], spec["scaleDownLimit"]):
        assert limit["properties"]["pods"]["maximum"] == resources.MAX_REPLICAS
        assert limit["properties"]["seconds"]["maximum"] == resources.MAX_STEP_SECONDS
    assert schema_of("workerpools")["properties"]["status"]["properties"]["recentDecisions"]["maxItems"] == (
        MAX_RECENT_DECISIONS
    )


@pytest.mark.parametrize("number", SEEDS)
def test_a_seeds_manifest_has_exactly_the_settings_of_its_python_module(number):
    from headrace_operator.resources import TaskQueueResource

    module, attributes = SEEDS[number]
    expected = [getattr(importlib.import_module(f"examples.{module}"), attribute) for attribute in attributes]
    queues = [manifest for manifest in seed_manifests(number) if manifest["kind"] == "TaskQueue"]
    assert [TaskQueueResource.from_body(as_stored(queue)).config for queue in queues] == expected


@pytest.mark.parametrize("number", SEEDS)
def test_a_seeds_manifest_brings_workers_for_its_queues(number):
    from headrace_operator.resources import WorkerPoolResource

    *queues, pool = seed_manifests(number)
    assert {manifest["apiVersion"] for manifest in (*queues, pool)} == {API_VERSION}
    resource = WorkerPoolResource.from_body(as_stored(pool))
    assert list(resource.queues) == [queue["metadata"]["name"] for queue in queues]
    assert (resource.image, resource.tasks) == ("headrace-worker:dev", "headrace_samples.tasks:app")
    assert resource.min_replicas == 1
    for queue in queues:
        assert queue["spec"]["redis"] == {"hosts": ["redis:6379"]}


def test_what_is_refused_has_a_name_of_its_own():
    names = [(case.manifest.count('"TaskQueue"'), case.name) for case in CASES]
    assert len(set(names)) == len(names) >= 30


# ── in a cluster ─────────────────────────────────────────────────────────────────────────────────────

in_a_cluster = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, cluster_wide_operator: object) -> Iterator[Namespace]:
    """One namespace for all tests here: what they apply is refused, or removed again."""
    made = Namespace(cluster, f"test-{secrets.token_hex(4)}")
    made.create()
    try:
        yield made
    finally:
        made.delete()


def refusal(namespace: Namespace, manifest: str) -> str:
    """What kubectl says when it cannot apply the manifest."""
    with pytest.raises(ClusterProblem) as refused:
        namespace.apply(manifest)
    _, _, said = str(refused.value).partition("\n")
    return said


class TestInACluster:
    pytestmark = in_a_cluster

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_a_wrong_manifest_is_refused_and_the_answer_says_why(self, namespace: Namespace, case: Case):
        if case.stored is None:
            assert refusal(namespace, case.manifest) == case.error
            return
        namespace.apply(case.stored)
        try:
            assert refusal(namespace, case.manifest) == case.error
        finally:
            namespace.kubectl("delete", "--filename=-", stdin=case.stored)

    @pytest.mark.parametrize("plural", KINDS)
    def test_what_is_not_said_gets_its_default(self, namespace: Namespace, plural: str):
        manifest = taskqueue() if plural == "taskqueues" else workerpool()
        namespace.apply(manifest)
        try:
            found = namespace.get(plural, NAME)["spec"]
        finally:
            namespace.kubectl("delete", plural, NAME)
        assert found == spec_with_defaults(plural, json.loads(manifest)["spec"])
        assert found.keys() > json.loads(manifest)["spec"].keys()

    @pytest.mark.parametrize("plural", KINDS)
    def test_all_that_can_be_said_is_kept_as_it_was_said(self, namespace: Namespace, plural: str):
        spec, status = FULL[plural], FULL_STATUS[plural]
        manifest = taskqueue(**spec) if plural == "taskqueues" else workerpool(**spec)
        namespace.apply(manifest)
        try:
            assert namespace.get(plural, NAME)["spec"] == spec
            # Tried out only, so that no operator that may be there has a say in it.
            patch = ["--subresource=status", "--type=merge", "--dry-run=server", "--output=json"]
            answer = namespace.kubectl("patch", plural, NAME, *patch, f"--patch={json.dumps({'status': status})}")
            assert json.loads(answer)["status"] == status
        finally:
            namespace.kubectl("delete", plural, NAME)

    def test_what_a_decision_was_made_from_can_be_read_again(self, namespace: Namespace):
        """Null within a list may or may not survive a merge patch, and what is whole comes back without its point."""
        unmeasured = queue_load(level_load(waiting=7, service_s=None), service_s=None, executing=0.25)
        decision = decide(pool_figures(unmeasured, up_limit=StepLimit(1, 60.0), idle_s=(1 / 3, 2.0), idle_seconds=1e-7))
        namespace.apply(workerpool())
        try:
            status = decision_status(None, decision, datetime(2030, 1, 31, tzinfo=UTC))
            patch = ["--subresource=status", "--type=merge", "--dry-run=server", "--output=json"]
            answer = namespace.kubectl("patch", "wp", NAME, *patch, f"--patch={json.dumps({'status': status})}")
        finally:
            namespace.kubectl("delete", "workerpool", NAME)
        stored = json.loads(answer)["status"]
        assert decide(msgspec.convert(stored["lastDecision"]["inputs"], Figures)) == decision
        assert decision_status(stored, decision, datetime(2031, 1, 31, tzinfo=UTC)).items() <= stored.items()

    def test_who_switches_kubectls_check_off_gets_nothing_else_in(self, namespace: Namespace):
        # The API server drops what the schema does not know. A volume is left without a source then.
        stealthy = workerpool(template={"volumes": [{"name": "root", "hostPath": {"path": "/"}}]})
        with pytest.raises(ClusterProblem, match="a volume has exactly one source"):
            namespace.kubectl("apply", "--validate=false", "--filename=-", stdin=stealthy)
        stealthy = workerpool(template={"hostNetwork": True, "securityContext": {"privileged": True}})
        namespace.kubectl("apply", "--validate=false", "--filename=-", stdin=stealthy)
        try:
            assert namespace.get("workerpool", NAME)["spec"]["template"] == {}
        finally:
            namespace.kubectl("delete", "workerpool", NAME)

    @pytest.mark.parametrize("number", SEEDS)
    def test_a_seeds_manifest_is_let_in(self, namespace: Namespace, number: str):
        path = ROOT / "examples" / f"taskqueue-seed-{number}.yaml"
        namespace.kubectl("apply", "--dry-run=server", f"--filename={path}")

    def test_what_says_nothing_new_about_a_queues_place_is_no_change(self, namespace: Namespace):
        namespace.apply(taskqueue())
        try:
            namespace.apply(taskqueue(queue=NAME, paused=True, redis={"hosts": ["redis:6379"], "db": 0}))
            namespace.apply(taskqueue())
        finally:
            namespace.kubectl("delete", "taskqueue", NAME)

    @pytest.mark.parametrize("what", ["taskqueue.spec.levels", "tq.spec.redis.hosts", "wp.spec.template.volumeMounts"])
    def test_kubectl_explains(self, namespace: Namespace, what: str):
        kind, *path = what.split(".")
        field = schema_of("workerpools" if kind == "wp" else "taskqueues")
        for name in path:
            field = field["properties"][name]
        said = " ".join(namespace.kubectl("explain", what).split())
        assert field["description"] in said
        for inner in field["items"].get("properties", {}).values():
            assert inner["description"] in said

    def test_kubectl_get_shows_what_one_wants_to_see_first(self, namespace: Namespace):
        namespace.apply(taskqueue())
        namespace.apply(workerpool())
        try:
            shown = namespace.kubectl("get", "headrace", "--output=wide")
            heads = [line.split() for line in shown.splitlines() if line.startswith("NAME")]
            queues = namespace.kubectl("get", "tq").splitlines()
            pools = namespace.kubectl("get", "wp").splitlines()
        finally:
            namespace.kubectl("delete", "headrace", "--all")
        wide = (["DELAYED", "TENANT", "REASON"], ["REVISION", "REASON", "WHY"])
        assert queues[0].split() == ["NAME", "DEPTH", "EXECUTING", "OLDEST", "DEAD", "READY", "AGE"]
        assert pools[0].split() == ["NAME", "MIN", "MAX", "DESIRED", "READY", "BUSY", "IDLE", "DRAINING", "AGE"]
        assert heads == [queues[0].split() + wide[0], pools[0].split() + wide[1]]
        assert pools[1].split()[:3] == [NAME, "0", "10"]

    def test_a_pool_can_be_scaled(self, namespace: Namespace):
        namespace.apply(workerpool(replicas=1))
        try:
            namespace.kubectl("scale", "workerpool", NAME, "--replicas=4")
            assert namespace.get("workerpool", NAME)["spec"]["replicas"] == 4
        finally:
            namespace.kubectl("delete", "workerpool", NAME)
