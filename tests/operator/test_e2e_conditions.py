"""What the API server cannot refuse: a condition with its reason, an event, and neighbours that do not notice.

`tests/operator` has another table, of what it does refuse.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.lifecycle import Cluster
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    Operator,
    Producer,
    apply,
    condition,
    deploy_redis,
    event,
    producing,
    secret,
    service_account,
    taskqueue,
    wait_for_condition,
    wait_until_ready,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NEIGHBOUR = "neighbour"
PULSE_S = 120.0

Objects = list[dict[str, Any]]


@dataclass(frozen=True)
class Wrong:
    """A manifest that is stored although it cannot be made true, and what its object has to say about it."""

    what: str
    objects: Callable[[str], Objects]
    """Made for a namespace of this name; the last of them is the one that complains."""
    reason: str
    message: str
    """A regular expression for a part of it."""
    types: tuple[str, ...] = ("Ready",)
    """The conditions that are False for this reason."""


def by_secret(name: str) -> dict[str, Any]:
    """A TaskQueue whose Redis is named by a Secret's url."""
    return taskqueue(name, redis={"secretRef": {"name": f"{name}-redis"}})


def with_template(name: str, **template: Any) -> dict[str, Any]:
    """A pool on the neighbour's queue whose workers are special."""
    return workerpool(name, [NEIGHBOUR], template=template)


TABLE = [
    # ── TaskQueues ───────────────────────────────────────────────────────────────────────────────────
    Wrong(
        "a Secret that is not there",
        lambda _: [by_secret("no-secret")],
        "SecretMissing",
        r"spec\.redis\.secretRef: Secret no-secret-redis does not exist in namespace \S+; create it",
    ),
    Wrong(
        "a Secret without a url",
        lambda _: [secret("keyless-redis", address="redis:6379"), by_secret("keyless")],
        "SecretInvalid",
        r"Secret keyless-redis has no key 'url'",
    ),
    Wrong(
        "a Secret whose url is none",
        lambda _: [secret("garbled-redis", url="http://redis"), by_secret("garbled")],
        "SecretInvalid",
        r"Secret garbled-redis, key 'url': must start with one of redis://",
    ),
    Wrong(
        "a Redis that is not there",
        lambda _: [taskqueue("astray", redis={"hosts": ["nowhere:6379"]})],
        "BackendUnreachable",
        r"redis://nowhere\S*:6379/0 is unavailable: ",
        types=("Ready", "BackendReachable"),
    ),
    Wrong(
        "a wrong password",
        lambda namespace: [
            secret("stranger-redis", url=f"redis://app:wrong@redis.{namespace}.svc:6379/0"),
            by_secret("stranger"),
        ],
        "BackendUnreachable",
        r"Redis refused the login; check user name and password",
        types=("Ready", "BackendReachable"),
    ),
    Wrong(
        "the keys of another TaskQueue",
        lambda _: [taskqueue("twin", queue=NEIGHBOUR)],
        "KeysClaimed",
        rf"TaskQueue \S+/{NEIGHBOUR} has these keys already; give this one another spec\.queue",
    ),
    Wrong(
        "a foreign tenant",
        lambda _: [taskqueue("intruder", tenant="kube-system")],
        "TenantNotAllowed",
        r"spec\.tenant: namespace \S+ may not use the tenant 'kube-system'; leave it out",
    ),
    # ── WorkerPools ──────────────────────────────────────────────────────────────────────────────────
    Wrong(
        "a queue that is not there",
        lambda _: [workerpool("no-queue", ["nowhere"])],
        "QueueMissing",
        r"spec\.queues\[0\]: TaskQueue nowhere does not exist in namespace \S+; create it, or correct the name",
    ),
    Wrong(
        "a queue that is not ready",
        lambda _: [taskqueue("unready", tenant="kube-system"), workerpool("waiting", ["unready"])],
        "QueueNotReady",
        r"spec\.queues\[0\]: TaskQueue unready is not ready; see kubectl describe taskqueue unready",
    ),
    Wrong(
        "queues that no single worker could serve",
        lambda _: [
            taskqueue("elsewhere", redis={"hosts": ["redis:6379"], "db": 1}),
            workerpool("torn", [NEIGHBOUR, "elsewhere"]),
        ],
        "QueuesDisagree",
        r"TaskQueues neighbour and elsewhere differ in spec\.redis\.db \(0, 1\)",
    ),
    Wrong(
        "an image that cannot be pulled",
        lambda _: [workerpool("no-image", [NEIGHBOUR], image="registry.invalid/app:1")],
        "ImageNotPulled",
        r"Pod no-image-\S+ cannot get image registry\.invalid/app:1 .*Correct spec\.image",
    ),
    Wrong(
        "a task module that cannot be imported",
        lambda _: [workerpool("no-module", [NEIGHBOUR], tasks="headrace_samples.nowhere:app")],
        "WorkerCrashes",
        r"pod no-module-\S+ ended with exit code 2: .*there is no module 'headrace_samples\.nowhere'",
    ),
    Wrong(
        "a variable from a Secret that is not there",
        lambda _: [
            with_template(
                "no-variable",
                env=[{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "token"}}}],
            )
        ],
        "ContainerNotStarted",
        r"Pod no-variable-\S+ cannot start its container .*secret \"nowhere\" not found",
    ),
    Wrong(
        "a node that is not there",
        lambda _: [with_template("homeless", nodeSelector={"planet": "mars"})],
        "Unschedulable",
        r"No node takes pod homeless-\S+ .*nodeSelector",
    ),
    Wrong(
        "a service account that is not there",
        lambda _: [with_template("no-account", serviceAccountName="nobody")],
        "ServiceAccountMissing",
        r"spec\.template\.serviceAccountName: ServiceAccount nobody does not exist; create it",
    ),
    Wrong(
        "a service account that does not allow it",
        lambda _: [
            service_account("private", allows_workers=False),
            with_template("borrowing", serviceAccountName="private"),
        ],
        "ServiceAccountNotAllowed",
        r"kubectl annotate serviceaccount private headrace\.dev/allow-workers=true",
    ),
]


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, cluster_wide_operator: Operator) -> Iterator[Namespace]:
    """One namespace for the whole table, with a queue and a pool in it that are all right."""
    made = Namespace(cluster, f"test-{secrets.token_hex(4)}")
    made.create()
    try:
        deploy_redis(made)
        apply(made, taskqueue(NEIGHBOUR), workerpool(NEIGHBOUR, [NEIGHBOUR]))
        wait_until_ready(made, queues=[NEIGHBOUR], pools=[NEIGHBOUR])
        yield made
    finally:
        made.delete()


@pytest.fixture(scope="module")
def neighbour(namespace: Namespace) -> Iterator[Producer]:
    with producing(namespace, NEIGHBOUR) as producer:
        yield producer


@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.what.replace(" ", "-"))
def test_it_says_what_is_wrong_and_its_neighbour_goes_on(namespace, operator, neighbour, wrong):
    objects = wrong.objects(namespace.name)
    kind, name = objects[-1]["kind"], objects[-1]["metadata"]["name"]
    apply(namespace, *objects)
    try:
        for type in wrong.types:
            found = wait_for_condition(namespace, kind, name, type, "False", reason=wrong.reason)
            assert re.search(wrong.message, found["message"]), found["message"]
        told = event(namespace, kind, name, wrong.reason)
        assert told["type"] == "Warning"
        assert re.search(wrong.message, told["message"]), told["message"]

        works(neighbour)
        body = namespace.get("taskqueue", NEIGHBOUR)
        assert (condition(body, "Ready") or {})["status"] == "True"
    finally:
        delete(namespace, objects)


def works(neighbour: Producer) -> None:
    (record,) = neighbour.completed(neighbour.enqueue("nothing", [7]), PULSE_S)
    assert record.result == 7


def delete(namespace: Namespace, objects: Objects) -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    namespace.kubectl("delete", "--filename=-", "--ignore-not-found", "--wait=false", stdin=listed)


def test_what_was_missing_and_is_there_at_last_is_found_without_a_nudge(namespace, operator):
    """Neither Secrets nor service accounts are watched: they are looked for again."""
    objects = [by_secret("late"), workerpool("late", ["late"], template={"serviceAccountName": "late"})]
    apply(namespace, *objects)
    try:
        wait_for_condition(namespace, "taskqueue", "late", "Ready", "False", reason="SecretMissing")
        wait_for_condition(namespace, "workerpool", "late", "Ready", "False", reason="QueueNotReady")
        apply(namespace, secret("late-redis", url=f"redis://redis.{namespace.name}.svc:6379/0"))
        wait_for_condition(namespace, "taskqueue", "late", "Ready", "True")
        wait_for_condition(namespace, "workerpool", "late", "Ready", "False", reason="ServiceAccountMissing")
        apply(namespace, service_account("late", allows_workers=False))
        wait_for_condition(namespace, "workerpool", "late", "Ready", "False", reason="ServiceAccountNotAllowed")
        namespace.kubectl("annotate", "serviceaccount/late", "headrace.dev/allow-workers=true")
        wait_for_condition(namespace, "workerpool", "late", "Ready", "True")
        with producing(namespace, "late") as producer:
            producer.completed(producer.enqueue("nothing", [1]))
    finally:
        delete(namespace, objects)


def test_keys_are_free_for_the_next_when_their_owner_is_gone(namespace, operator):
    first, second = taskqueue("first", queue="shared"), taskqueue("second", queue="shared")
    apply(namespace, first)
    try:
        wait_until_ready(namespace, queues=["first"])
        apply(namespace, second)
        wait_for_condition(namespace, "taskqueue", "second", "Ready", "False", reason="KeysClaimed")
        delete(namespace, [first])
        wait_until_ready(namespace, queues=["second"])
    finally:
        delete(namespace, [first, second])
