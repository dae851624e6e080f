"""The chart with ``watchNamespaces``: an operator with rights in its own namespace only, and no eye for others."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.support.chart import Release
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    Operator,
    apply,
    deployments,
    producing_on,
    taskqueue,
    wait_for_condition,
    wait_for_workers,
    wait_until_ready,
    workerpool,
)

# Two operators that share no Lease would both act, so the one of all namespaces is not there meanwhile.
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
    with operator.stopped():
        installed = Operator(namespace)
        try:
            installed.install(
                {
                    "watchNamespaces": [namespace.name],
                    "crds": {"install": False},
                    "operator": {"tenants": {namespace.name: ["guests"]}},
                }
            )
            yield installed
        finally:
            installed.remove()


def test_it_works_in_its_namespace_and_ignores_another(namespace, other_namespace, own_operator):
    release = own_operator.release
    redis = {"secretRef": {"name": release.connection_secret}}
    # With the usual grace, Kubernetes would take minutes to find that the namespace is empty.
    objects = [taskqueue("orders", redis=redis), workerpool("steady", ["orders"], replicas=1, graceSeconds=1)]
    release.connect(other_namespace)
    apply(other_namespace, *objects)
    apply(
        namespace,
        *objects,
        taskqueue("welcome", redis=redis, tenant="guests"),
        taskqueue("unwelcome", redis=redis, tenant="strangers"),
    )
    wait_until_ready(namespace, queues=["orders", "welcome"], pools=["steady"])
    wait_for_condition(namespace, "taskqueue", "unwelcome", "Ready", "False", reason="TenantNotAllowed")
    with producing_on(release, namespace, "orders") as producer:
        assert [record.result for record in producer.completed(producer.enqueue("nothing", [1], [2]))] == [1, 2]
    namespace.kubectl("scale", "workerpool/steady", "--replicas=2")
    wait_for_workers(namespace, "steady", 2)
    assert "Succeeded" in release.test()

    # By now it would have had all the time in the world to look next door.
    for kind, name in (("taskqueue", "orders"), ("workerpool", "steady")):
        assert "status" not in other_namespace.get(kind, name)
    assert not deployments(other_namespace, "steady")
    own_operator.read_logs()
    assert own_operator.refusals == []

    it_has_nothing_outside(namespace)
    without_an_operator_its_test_says_what_is_missing(release)
    release.uninstall()
    its_namespace_goes(namespace)


def it_has_nothing_outside(namespace: Namespace) -> None:
    """Of what every release of this name would have, the cluster has only that of the operator of all namespaces."""
    kinds = "clusterroles,clusterrolebindings,customresourcedefinitions"
    by = "{.metadata.annotations.meta\\.helm\\.sh/release-namespace}"
    lines = "{range .items[*]}" + by + '{"\\n"}{end}'
    assert namespace.name not in namespace.kubectl("get", kinds, f"--output=jsonpath={lines}").split()


def without_an_operator_its_test_says_what_is_missing(release: Release) -> None:
    release.upgrade({"operator": {"replicas": 0}, "tests": {"timeoutSeconds": 3}})
    with pytest.raises(ClusterProblem, match="The operator did not publish the queue headrace-test within 3 s"):
        release.test()


def its_namespace_goes(namespace: Namespace) -> None:
    """With its TaskQueues and WorkerPools, though nobody looks after them any more."""
    assert "orders" in namespace.kubectl("get", "taskqueues", "--output=name")
    namespace.kubectl("delete", "namespace", namespace.name, "--wait=false")
    namespace.wait_for("delete", f"namespace/{namespace.name}")
