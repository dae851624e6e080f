"""``operator/deploy/one-namespace.yaml``: an operator with rights in its own namespace only, and no eye for others."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from tests.cluster.lifecycle import Cluster
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    ONE_NAMESPACE,
    Operator,
    apply,
    deploy_redis,
    deployments,
    producing,
    replaced,
    taskqueue,
    wait_for_condition,
    wait_for_workers,
    wait_until_ready,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive, pytest.mark.slow]


@pytest.fixture
def other_namespace(cluster: Cluster) -> Iterator[Namespace]:
    made = Namespace(cluster, f"test-{secrets.token_hex(4)}")
    made.create()
    try:
        yield made
    finally:
        made.delete()


@pytest.fixture
def own_operator(namespace: Namespace, operator: Operator) -> Iterator[Operator]:
    """An operator of this namespace's own, and nobody else's meanwhile. It may also use the tenant `guests`."""
    tenants = json.dumps({namespace.name: ["guests"]}, separators=(",", ":"))
    manifest = replaced(
        ONE_NAMESPACE.read_text(),
        "            - --health-port=8080\n",
        f"            - --health-port=8080\n            - '--tenants={tenants}'\n",
    )
    with operator.stopped():
        installed = Operator(namespace)
        try:
            installed.deploy(manifest)
            yield installed
        finally:
            installed.remove()


def test_it_works_in_its_namespace_and_ignores_another(namespace, other_namespace, own_operator):
    objects = [taskqueue("orders"), workerpool("steady", ["orders"], replicas=1)]
    for each in (other_namespace, namespace):
        deploy_redis(each)
        apply(each, *objects)
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    with producing(namespace, "orders") as producer:
        assert [record.result for record in producer.completed(producer.enqueue("nothing", [1], [2]))] == [1, 2]
    namespace.kubectl("scale", "workerpool/steady", "--replicas=2")
    wait_for_workers(namespace, "steady", 2)

    # By now it would have had all the time in the world to look next door.
    for kind, name in (("taskqueue", "orders"), ("workerpool", "steady")):
        assert "status" not in other_namespace.get(kind, name)
    assert not deployments(other_namespace, "steady")
    own_operator.read_logs()
    assert own_operator.refusals == []


def test_a_tenant_that_was_allowed_can_be_used_and_no_other(namespace, own_operator):
    deploy_redis(namespace)
    apply(
        namespace,
        taskqueue("welcome", tenant="guests"),
        taskqueue("unwelcome", tenant="strangers"),
        workerpool("steady", ["welcome"], replicas=1),
    )
    wait_until_ready(namespace, queues=["welcome"], pools=["steady"])
    with producing(namespace, "welcome", tenant="guests") as producer:
        producer.completed(producer.enqueue("nothing", [1]))
    wait_for_condition(namespace, "taskqueue", "unwelcome", "Ready", "False", reason="TenantNotAllowed")
