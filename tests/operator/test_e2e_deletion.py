"""Deleting: pools hand back or finish, queues keep their tasks unless told otherwise, and a namespace always goes."""

from __future__ import annotations

import secrets

import pytest

from headrace import TaskState
from tests.support.kubernetes import CONDITION_TIMEOUT_S, Namespace
from tests.support.operator import (
    apply,
    deploy_redis,
    deployments,
    event,
    producing,
    taskqueue,
    wait_for,
    wait_until_ready,
    worker_pods,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TASKS = 12
# The short ones are still at work when the pool is deleted, even on a slow machine.
SHORT_S, GRACE_S, LONG_S = 15.0, 30, 250.0


def test_a_deleted_pool_finishes_what_fits_into_its_grace_and_hands_back_the_rest(namespace, operator):
    deploy_redis(namespace)
    pool = workerpool("steady", ["orders"], replicas=1, concurrency=4, graceSeconds=GRACE_S)
    apply(namespace, taskqueue("orders"), pool)
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    with producing(namespace, "orders") as producer:
        short = producer.enqueue("rest", [SHORT_S], [SHORT_S], priority="high")
        long = producer.enqueue("rest", [LONG_S], [LONG_S], priority="high")
        waiting = producer.enqueue("nothing", *([number] for number in range(TASKS)), priority="low")
        producer.wait_until_executing(4)
        (pod,) = worker_pods(namespace, "steady")
        name = pod["metadata"]["name"]

        namespace.kubectl("delete", "workerpool/steady", "--wait=false")
        wait_for(lambda: not deployments(namespace, "steady"), "the pool's Deployment stayed")
        # The pod stays for as long as its worker needs to drain; then it is gone, too.
        namespace.wait_for("delete", f"pod/{name}")
        assert producer.stats().executing == 0

        records = producer.records(short)
        assert {record.state for record in records} == {TaskState.COMPLETED}
        assert all((record.worker or "").startswith(name) for record in records)
        for record in producer.records([*long, *waiting]):
            assert (record.state, record.retry_count, record.history) == (TaskState.QUEUED, 0, ())

        producer.app.cancel("orders", long)
        apply(namespace, pool)
        wait_until_ready(namespace, pools=["steady"])
        producer.completed(waiting)


def test_a_deleted_queue_keeps_its_tasks_and_says_so(namespace, operator):
    deploy_redis(namespace)
    queue = taskqueue("orders")
    apply(namespace, queue)
    wait_until_ready(namespace, queues=["orders"])
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("nothing", *([number] for number in range(TASKS)))
        namespace.kubectl("delete", "taskqueue/orders")
        said = event(namespace, "TaskQueue", "orders", "DataKept")
        assert "deletionPolicy: Purge" in said["message"]
        assert len([key for key in producer.stored_keys() if ":task:" in key]) == TASKS
        assert producer.is_listed()

        # Whoever makes it again has its tasks again.
        apply(namespace, queue, workerpool("steady", ["orders"], replicas=1))
        wait_until_ready(namespace, queues=["orders"], pools=["steady"])
        producer.completed(ids)


def test_a_queue_that_is_to_be_purged_leaves_no_key_and_its_neighbours_all_of_theirs(namespace, operator):
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders", deletionPolicy="Purge"), taskqueue("orders-2", deletionPolicy="Purge"))
    wait_until_ready(namespace, queues=["orders", "orders-2"])
    with producing(namespace, "orders") as producer, producing(namespace, "orders-2") as neighbour:
        for each in (producer, neighbour):
            each.enqueue("nothing", *([number] for number in range(TASKS)))
            each.enqueue("nothing", [0], delay_s=3600.0, idempotency_key="once")
        assert producer.stored_keys()
        namespace.kubectl("delete", "taskqueue/orders")
        event(namespace, "TaskQueue", "orders", "Purged")
        wait_for(lambda: not producer.stored_keys(), "keys of a purged queue were left")
        assert not producer.is_listed()
        assert len([key for key in neighbour.stored_keys() if ":task:" in key]) == TASKS + 1
        assert neighbour.is_listed()


@pytest.mark.disruptive
def test_a_namespace_can_be_deleted_while_there_is_no_operator(cluster, operator):
    doomed = Namespace(cluster, f"test-{secrets.token_hex(4)}")
    doomed.create()
    deploy_redis(doomed)
    apply(doomed, taskqueue("orders", deletionPolicy="Purge"), workerpool("steady", ["orders"], graceSeconds=1))
    wait_until_ready(doomed, queues=["orders"], pools=["steady"])
    with operator.stopped():
        doomed.kubectl("delete", "namespace", doomed.name, "--wait=false")
        doomed.wait_for("delete", f"namespace/{doomed.name}", timeout_s=2 * CONDITION_TIMEOUT_S)
