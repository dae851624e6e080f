"""What a pool's workers look like, and what makes another revision of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.queue.settings import RedisSettings
from headrace.worker.pool import membership
from headrace_operator.manifests import (
    deployment,
    grace_period_s,
    owner_reference,
    revision_of,
    worker_template,
)
from headrace_operator.reading import InvalidResource
from headrace_operator.redis_reference import REDIS_CA_FILE, redis_settings
from headrace_operator.resources import WorkerPoolResource
from tests.operator.builders import FULL_TEMPLATE, metadata, pool, queue

IDENTITY = [
    {"name": "HEADRACE_TENANT", "value": "shop"},
    {"name": "HEADRACE_NAMESPACE", "value": "shop"},
    {"name": "HEADRACE_POOL", "value": "workers"},
]


def template(*, redis: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """The pod template of a pool that serves one queue."""
    return worker_template(pool(**spec), [queue(redis=redis or {"hosts": ["redis"]})])


def container(made: dict[str, Any]) -> dict[str, Any]:
    (only,) = made["spec"]["containers"]
    return dict(only)


# ── the pod ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_as_it_is_without_any_wishes():
    assert template() == {
        "metadata": {
            "labels": {
                "app.kubernetes.io/name": "headrace-worker",
                "app.kubernetes.io/managed-by": "headrace-operator",
                "headrace.dev/pool": "workers",
            }
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "shareProcessNamespace": True,
            "terminationGracePeriodSeconds": 915,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "worker",
                    "image": "shop:1",
                    "imagePullPolicy": "IfNotPresent",
                    "args": [
                        "shop.tasks:app",
                        "--queue=orders",
                        "--concurrency=5",
                        "--grace=900",
                        "--health-port=8080",
                    ],
                    "env": [
                        *IDENTITY,
                        {"name": "HEADRACE_REDIS_URL", "value": "redis://redis:6379/0"},
                    ],
                    "ports": [{"name": "health", "containerPort": 8080, "protocol": "TCP"}],
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 1},
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
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [{"name": "headrace-tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "headrace-tmp", "emptyDir": {}}],
        },
    }


def test_arguments_follow_the_pool_s_order_and_name_queues_as_redis_does():
    made = worker_template(
        pool(queues=["orders", "mails"], concurrency=20, capabilities=["gpu", "eu"], graceSeconds=7),
        [queue("mails", queue="mails-eu"), queue("orders")],
    )
    assert container(made)["args"] == [
        "shop.tasks:app",
        "--queue=orders",
        "--queue=mails-eu",
        "--concurrency=20",
        "--capability=gpu",
        "--capability=eu",
        "--grace=7",
        "--health-port=8080",
    ]
    assert made["spec"]["terminationGracePeriodSeconds"] == 22


def test_the_command_line_takes_these_arguments():
    from headrace.cli.main import _parser

    options = _parser().parse_args(["worker", *container(template(capabilities=["gpu"], graceSeconds=9))["args"]])
    assert (options.app, options.queue, options.concurrency) == ("shop.tasks:app", ["orders"], 5)
    assert (options.capability, options.grace, options.health_port) == (["gpu"], 9.0, 8080)


@pytest.mark.parametrize(
    ("timeouts_s", "grace_s"), [([[10, 20], [30, 5]], 30), ([[0.2], [1.2]], 2), ([[10], [7200]], 3600)]
)
def test_the_grace_period_is_that_of_the_longest_task_of_all_queues(timeouts_s, grace_s):
    queues = [
        queue(name, levels=[{"name": f"l{index}", "timeoutSeconds": each} for index, each in enumerate(timeout_s)])
        for name, timeout_s in zip(("orders", "mails"), timeouts_s, strict=True)
    ]
    assert grace_period_s(pool(queues=["orders", "mails"]), queues) == grace_s
    assert grace_period_s(pool(queues=["orders", "mails"], graceSeconds=0), queues) == 0


def test_queues_that_do_not_fit_together_have_no_template():
    with pytest.raises(InvalidResource, match="spec.queues"):
        worker_template(pool(queues=["orders", "mails"]), [queue("orders"), queue("mails", tenant="acme")])


def test_a_worker_is_told_which_task_queues_are_called_otherwise_than_their_queue():
    queues = [queue("zebra", queue="jobs"), queue("orders"), queue("mails", queue="post")]
    made = worker_template(pool(queues=["orders", "zebra", "mails"]), queues)
    told = {"name": "HEADRACE_QUEUE_NAMES", "value": "jobs=zebra,post=mails"}
    assert container(made)["env"][len(IDENTITY)] == told
    assert membership({told["name"]: told["value"]}, "shop").task_queues == {"jobs": "zebra", "post": "mails"}
    assert worker_template(pool(queues=["orders", "zebra", "mails"]), queues[::-1]) == made


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


def _secret_variable(name: str, key: str, **optional: bool) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "orders-redis", "key": key, **optional}}}


def test_a_url_stays_in_its_secret():
    made = template(redis={"secretRef": {"name": "orders-redis"}})
    assert container(made)["env"] == [
        *IDENTITY,
        _secret_variable("HEADRACE_REDIS_URL", "url"),
    ]


def test_a_login_stays_in_its_secret():
    made = template(redis={"hosts": ["redis"], "secretRef": {"name": "orders-redis"}})
    assert container(made)["env"] == [
        *IDENTITY,
        {"name": "HEADRACE_REDIS_URL", "value": "redis://redis:6379/0"},
        _secret_variable("HEADRACE_REDIS_USERNAME", "username", optional=True),
        _secret_variable("HEADRACE_REDIS_PASSWORD", "password", optional=True),
    ]


def test_sentinels_have_a_login_of_their_own():
    sentinel = {"mode": "Sentinel", "hosts": ["s"], "sentinelService": "m", "secretRef": {"name": "orders-redis"}}
    assert container(template(redis=sentinel))["env"][len(IDENTITY) + 1 :] == [
        _secret_variable("HEADRACE_REDIS_USERNAME", "username", optional=True),
        _secret_variable("HEADRACE_REDIS_PASSWORD", "password", optional=True),
        _secret_variable("HEADRACE_REDIS_SENTINEL_USERNAME", "sentinel-username", optional=True),
        _secret_variable("HEADRACE_REDIS_SENTINEL_PASSWORD", "sentinel-password", optional=True),
    ]


@pytest.mark.parametrize(
    "redis",
    [
        {"hosts": ["redis"], "db": 2},
        {"mode": "Cluster", "hosts": ["a", "b:7000"], "tls": {"enabled": True, "checkHostname": False}},
        {"mode": "Sentinel", "hosts": ["s1", "s2"], "sentinelService": "mymaster"},
        {"hosts": ["redis"], "tls": {"enabled": True, "caSecretRef": {"name": "redis-ca"}}},
        {},
    ],
)
def test_a_worker_connects_as_the_operator_does(redis):
    secret = {
        "url": "rediss+sentinel://u:p@s1/mymaster/3?sentinel_password=sp",
        "username": "us%er",
        "password": "p@ss/w$(x)",
        "sentinel-username": "su",
        "sentinel-password": "sp",
    }
    read = queue(redis=redis | {"secretRef": {"name": "orders-redis"}})
    variables = container(worker_template(pool(), [read]))["env"]
    environment = {
        variable["name"]: variable["value"]
        if "value" in variable
        else secret[variable["valueFrom"]["secretKeyRef"]["key"]]
        for variable in variables
    }
    ca_file = REDIS_CA_FILE if read.redis.ca_secret else None
    assert RedisSettings.from_environment(environment) == redis_settings(read.redis, secret, ca_file)


def test_a_certificate_is_mounted_under_one_name_whatever_its_key():
    made = template(
        redis={"hosts": ["r"], "tls": {"enabled": True, "caSecretRef": {"name": "redis-ca", "key": "root.pem"}}}
    )
    assert made["spec"]["volumes"][1] == {
        "name": "headrace-redis-tls",
        "secret": {"secretName": "redis-ca", "items": [{"key": "root.pem", "path": "ca.crt"}]},
    }
    mount = container(made)["volumeMounts"][1]
    assert mount == {"name": "headrace-redis-tls", "mountPath": "/etc/headrace/redis-tls", "readOnly": True}
    assert f"{mount['mountPath']}/ca.crt" == REDIS_CA_FILE
    assert container(made)["env"][len(IDENTITY)]["value"] == f"rediss://r:6379/0?tls_ca_file={REDIS_CA_FILE}"


# ── what the user adds ───────────────────────────────────────────────────────────────────────────────


def test_what_the_user_adds_comes_after_ours():
    made = template(template=FULL_TEMPLATE)
    spec, worker = made["spec"], container(made)
    assert made["metadata"]["labels"]["team"] == "shop"
    assert made["metadata"]["labels"]["headrace.dev/pool"] == "workers"
    assert made["metadata"]["annotations"] == FULL_TEMPLATE["annotations"]
    assert [variable["name"] for variable in worker["env"]] == [
        *(variable["name"] for variable in IDENTITY), "HEADRACE_REDIS_URL", "MODE", "EMPTY", "KEY", "SETTING", "NODE",
    ]  # fmt: skip
    assert worker["env"][len(IDENTITY) + 1 :] == FULL_TEMPLATE["env"]
    assert spec["volumes"][1:] == FULL_TEMPLATE["volumes"]
    assert worker["volumeMounts"][1:] == FULL_TEMPLATE["volumeMounts"]
    assert (worker["envFrom"], worker["resources"]) == (FULL_TEMPLATE["envFrom"], FULL_TEMPLATE["resources"])
    for key in ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets", "serviceAccountName"):
        assert spec[key] == FULL_TEMPLATE[key]


def test_a_token_is_mounted_only_for_an_account_that_was_named():
    assert template()["spec"]["automountServiceAccountToken"] is False
    made = template(template={"serviceAccountName": "shop"})
    assert made["spec"]["automountServiceAccountToken"] is True
    assert made["spec"]["serviceAccountName"] == "shop"


def test_ours_win_over_labels_that_were_stored_before_they_were_refused():
    import dataclasses

    old = dataclasses.replace(pool(), template={"labels": {"headrace.dev/pool": "other", "team": "shop"}})
    labels = worker_template(old, [queue()])["metadata"]["labels"]
    assert (labels["headrace.dev/pool"], labels["team"]) == ("workers", "shop")


@given(st.permutations(sorted(FULL_TEMPLATE)), st.sets(st.sampled_from(sorted(FULL_TEMPLATE))))
def test_every_worker_is_restricted_whatever_is_in_its_template(order, left_out):
    left_out |= {"volumeMounts"} if "volumes" in left_out else set()
    made = template(template={key: FULL_TEMPLATE[key] for key in order if key not in left_out})
    spec, worker = made["spec"], container(made)
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "initContainers"} & set(spec)
    json.dumps(made, allow_nan=False)


def test_the_pool_on_the_page_about_tracing_can_be_made():
    text = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
    body = yaml.safe_load(text.partition("```yaml")[2].partition("```")[0])
    body["metadata"] |= {key: value for key, value in metadata("orders").items() if key != "name"}
    made = worker_template(WorkerPoolResource.from_body(body), [queue()])
    assert container(made)["env"][-1]["value"].endswith("k8s.namespace.name=$(HEADRACE_NAMESPACE)")


# ── revisions ────────────────────────────────────────────────────────────────────────────────────────


def _shuffled(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, dict):
        order = data.draw(st.permutations(list(value)))
        return {key: _shuffled(value[key], data) for key in order}
    return [_shuffled(each, data) for each in value] if isinstance(value, list) else value


@given(st.data())
def test_the_order_of_keys_makes_no_revision(data):
    made = template(template=FULL_TEMPLATE)
    assert revision_of(_shuffled(made, data)) == revision_of(made)


def test_a_revision_is_eight_hexadecimal_digits():
    assert re.fullmatch(r"[0-9a-f]{8}", revision_of(template()))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-100, 100), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=3), st.dictionaries(st.text(max_size=4), JSON, max_size=3))
def test_templates_have_the_same_revision_only_if_they_are_the_same(one, other):
    # Python takes 1 for true; JSON does not.
    is_same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (revision_of(one) == revision_of(other)) == is_same


@pytest.mark.parametrize(
    "change",
    [
        {"queues": ["orders", "mails"]},
        {"image": "shop:2"},
        {"imagePullPolicy": "Always"},
        {"tasks": "shop.other:app"},
        {"concurrency": 6},
        {"capabilities": ["gpu"]},
        {"graceSeconds": 31},
        *({"template": {key: FULL_TEMPLATE[key]}} for key in FULL_TEMPLATE if key != "volumeMounts"),
    ],
    ids=str,
)
def test_what_matters_to_a_worker_makes_another_revision(change):
    queues = [queue("orders"), queue("mails")]
    assert revision_of(worker_template(pool(**change), queues)) != revision_of(worker_template(pool(), queues))


def test_a_mount_makes_another_revision():
    volumes = {"volumes": FULL_TEMPLATE["volumes"]}
    mounted = volumes | {"volumeMounts": FULL_TEMPLATE["volumeMounts"]}
    assert revision_of(template(template=volumes)) != revision_of(template(template=mounted))


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "acme"},
        {"queue": "orders-eu"},
        {"redis": {"hosts": ["other"]}},
        {"redis": {"hosts": ["redis"], "db": 1}},
        {"redis": {"hosts": ["redis"], "secretRef": {"name": "s"}}},
        {"redis": {"hosts": ["redis"], "tls": {"enabled": True}}},
        {"levels": [{"name": "only", "timeoutSeconds": 901}]},
    ],
    ids=str,
)
def test_what_matters_to_a_worker_of_its_queue_makes_another_revision(change):
    before = worker_template(pool(), [queue()])
    assert revision_of(worker_template(pool(), [queue(**change)])) != revision_of(before)


@given(
    st.integers(0, 5),
    st.integers(5, 50),
    st.none() | st.integers(0, 50),
    st.floats(0, 1000),
    st.floats(1, 1000),
    st.booleans(),
)
def test_how_many_workers_there_are_makes_no_revision(minimum, maximum, replicas, idle_s, drain_s, paused):
    changed = template(
        minReplicas=minimum,
        maxReplicas=maximum,
        replicas=replicas,
        idleSeconds=idle_s,
        targetDrainSeconds=drain_s,
        paused=paused,
    )
    assert revision_of(changed) == revision_of(template())


def test_a_queue_s_pause_makes_no_revision():
    assert worker_template(pool(), [queue(paused=True)]) == worker_template(pool(), [queue()])


# ── the Deployment ───────────────────────────────────────────────────────────────────────────────────


def test_the_deployment_of_a_revision():
    made = template(template={"labels": {"team": "shop"}})
    revision = revision_of(made)
    found = deployment(pool(), made)
    own = {"headrace.dev/pool": "workers", "headrace.dev/revision": revision}
    ours = {
        "app.kubernetes.io/name": "headrace-worker",
        "app.kubernetes.io/managed-by": "headrace-operator",
        **own,
    }
    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "Deployment")
    assert found["metadata"] == {
        "name": f"workers-{revision}",
        "namespace": "shop",
        "labels": ours,
        "ownerReferences": [owner_reference(pool())],
    }
    assert found["spec"]["selector"] == {"matchLabels": own}
    assert found["spec"]["template"]["metadata"]["labels"] == {"team": "shop", **ours}
    assert found["spec"]["template"]["spec"] == made["spec"]
    assert (found["spec"]["revisionHistoryLimit"], found["spec"]["progressDeadlineSeconds"]) == (0, 600)


def test_replicas_are_the_scaler_s():
    assert "replicas" not in deployment(pool(), template())["spec"]
    assert deployment(pool(), template(), replicas=0)["spec"]["replicas"] == 0


def test_a_template_is_not_changed_by_making_a_deployment_of_it():
    made = template()
    before = json.dumps(made)
    deployment(pool(), made, replicas=1)
    assert json.dumps(made) == before


def test_a_child_goes_with_its_pool():
    assert owner_reference(pool()) == {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "WorkerPool",
        "name": "workers",
        "uid": "uid-of-workers",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_a_pod_s_name_is_a_hostname():
    longest = deployment(pool("a" * 37), worker_template(pool("a" * 37), [queue()]))
    assert len(longest["metadata"]["name"]) + len("-1234567890-12345") <= 63
