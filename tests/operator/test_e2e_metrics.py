"""What Prometheus reads of the operator in a cluster: the leader tells of queues and pools, the other one of itself."""

from __future__ import annotations

import urllib.request

import pytest

from tests.operator.builders import read_page
from tests.support.operator import apply, deploy_redis, producing, taskqueue, wait_for, wait_until_ready, workerpool

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HEALTH_PORT = 8080


def page_of(operator, pod):
    with (
        operator.namespace.forwarded(f"pod/{pod}", HEALTH_PORT) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
    ):
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return read_page(answer.read().decode())


def leaders_page(operator, namespace):
    """What the leader tells of this namespace, without its name."""
    found = page_of(operator, operator.leader())
    return {(name, *labels[1:]): value for (name, *labels), value in found.items() if labels[:1] == [namespace.name]}


def test_the_leader_tells_of_queues_and_pools_and_the_other_one_only_that_it_does_not_lead(namespace, operator):
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders"), workerpool("steady", ["orders"], replicas=1))
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    with producing(namespace, "orders") as producer:
        producer.completed(producer.enqueue("nothing", *([number] for number in range(5))))

    def is_told() -> bool:
        found = leaders_page(operator, namespace)
        return found.get(("headrace_tasks_completed_total", "orders", "medium")) == 5

    wait_for(is_told, "the completed tasks were not told")
    found = leaders_page(operator, namespace)
    assert found["headrace_tasks_enqueued_total", "orders"] == 5
    assert found["headrace_queue_backend_reachable", "orders"] == 1
    assert found["headrace_workers_total", "orders", "active"] == 1
    assert found["headrace_pool_backlog", "steady"] == 0
    assert found["headrace_pool_pods", "steady", "desired"] == 1

    leader = operator.leader()
    (other,) = [pod["metadata"]["name"] for pod in operator.pods() if pod["metadata"]["name"] != leader]
    assert page_of(operator, leader)["headrace_operator_leader",] == 1
    assert page_of(operator, other) == {("headrace_operator_leader",): 0}

    # A Redis that never was, one that is gone for good, and then the TaskQueues, too.
    apply(namespace, taskqueue("lost", redis={"hosts": ["nowhere:6379"]}))
    wait_for(
        lambda: leaders_page(operator, namespace).get(("headrace_queue_backend_reachable", "lost")) == 0,
        "it was not told that a Redis cannot be reached from the beginning",
    )
    namespace.kubectl("delete", "deployment/redis")
    wait_for(
        lambda: leaders_page(operator, namespace).get(("headrace_queue_backend_reachable", "orders")) == 0,
        "the outage was not told",
    )
    of_queues = {key for key in leaders_page(operator, namespace) if key[1] in ("orders", "lost")}
    assert of_queues == {("headrace_queue_backend_reachable", name) for name in ("orders", "lost")}
    namespace.kubectl("delete", "workerpool/steady", "taskqueue/orders", "taskqueue/lost")
    wait_for(lambda: not leaders_page(operator, namespace), "figures of what is gone are still told")
