"""The leading operator goes, by force or politely: the other one takes over, and nothing is done twice."""

from __future__ import annotations

import time

import pytest

from tests.e2e.test_by_hand import kill_container
from tests.support.operator import (
    apply,
    change,
    deploy_redis,
    deployments,
    kill_9,
    needs_a_shell_on_the_node,
    producing,
    taskqueue,
    wait_for,
    wait_for_condition,
    wait_for_workers,
    wait_until_ready,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive, pytest.mark.slow]

TASKS = 30


@pytest.fixture
def at_work(namespace, operator):
    """A queue and a pool of one worker that are ready."""
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders"), workerpool("steady", ["orders"], replicas=1))
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])


def test_a_killed_leader_is_followed_by_the_other_who_acts_on_what_was_changed_meanwhile(
    namespace, operator, at_work, record_property
):
    needs_a_shell_on_the_node(namespace.cluster)
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("rest", *([1.0] for _ in range(TASKS)))
        producer.wait_until_executing(1)
        operator.read_logs()
        deposed = operator.leader()
        killed_s = time.monotonic()
        assert kill_9(operator.namespace, deposed)
        namespace.kubectl("scale", "workerpool/steady", "--replicas=2")
        successor = operator.wait_for_successor(deposed)
        record_property("takeover_s", round(time.monotonic() - killed_s, 1))
        assert successor != deposed

        wait_for_workers(namespace, "steady", 2)
        records = producer.completed(ids)
        assert {(record.retry_count, record.history) for record in records} == {(0, ())}
        assert producer.stats().counters["completed"] == TASKS
    assert len(deployments(namespace, "steady")) == 1
    operator.wait_until_it_leads()


def test_a_leader_that_wakes_up_after_its_term_changes_nothing(namespace, operator, at_work):
    needs_a_shell_on_the_node(namespace.cluster)
    frozen = operator.leader()
    pod = operator.namespace.get("pod", frozen)
    kill_container(operator.namespace, pod, "STOP")
    try:
        wait_for(lambda: not (operator.holder() or frozen).startswith(frozen), "nobody took over from a frozen leader")
        successor = operator.holder()
        change(namespace, "taskqueue/orders", lease={"maxCrashes": 7})
        wait_for_condition(namespace, "taskqueue", "orders", "Ready", "True")
    finally:
        kill_container(operator.namespace, pod, "CONT")
    wait_for(
        lambda: "leading no more" in operator.namespace.logs(frozen), "the one that woke up did not give up its term"
    )
    with producing(namespace, "orders") as producer:
        assert producer.config().max_crashes == 7
        producer.completed(producer.enqueue("nothing", [1]))
    assert operator.holder() == successor
    wait_for_condition(namespace, "workerpool", "steady", "Ready", "True")


def test_a_leader_that_is_asked_to_stop_hands_over(namespace, operator, at_work):
    operator.read_logs()
    before = operator.leader()
    operator.namespace.kubectl("delete", "pod", before, "--wait=false")
    namespace.kubectl("scale", "workerpool/steady", "--replicas=2")
    assert operator.wait_for_successor(before) != before
    wait_for_workers(namespace, "steady", 2)
    assert len(deployments(namespace, "steady")) == 1
    operator.wait_until_it_leads()
