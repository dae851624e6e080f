"""A busy worker's process is killed: its task is completed elsewhere."""

from __future__ import annotations

import pytest

from headrace import TaskState
from tests.support.operator import (
    apply,
    deploy_redis,
    kill_9,
    needs_a_shell_on_the_node,
    producing,
    taskqueue,
    wait_for_workers,
    wait_until_ready,
    worker_pods,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORKERS, SLOTS = 2, 2
TASKS = 5 * WORKERS * SLOTS
# Shorter leases than usual: what a killed worker held is seen to be taken up within seconds.
QUICK = {"seconds": 6, "heartbeatSeconds": 2, "workerDeadAfterSeconds": 10}


def test_the_tasks_of_a_killed_worker_complete_elsewhere(namespace, operator):
    needs_a_shell_on_the_node(namespace.cluster)
    deploy_redis(namespace)
    apply(
        namespace,
        taskqueue("orders", lease=QUICK),
        workerpool("steady", ["orders"], replicas=WORKERS, concurrency=SLOTS),
    )
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    before = {pod["metadata"]["uid"] for pod in worker_pods(namespace, "steady")}
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("rest", *([3.0] for _ in range(TASKS)))
        producer.wait_until_executing(WORKERS * SLOTS)
        victim = worker_pods(namespace, "steady")[0]["metadata"]["name"]
        held = [
            record.task_id
            for record in producer.records(ids)
            if record.state is TaskState.EXECUTING and (record.worker or "").startswith(victim)
        ]
        assert held, "the worker that is to be killed is not busy"
        died_with_it = [record.worker for record in producer.records(held)]
        assert kill_9(namespace, victim)

        records = {record.task_id: record for record in producer.completed(ids)}
        assert producer.stats().counters["completed"] == TASKS
        retried = [record for record in records.values() if record.retry_count]
        assert retried
        # Only what the dead one held was tried again, once, and not by the process that is dead.
        assert {record.task_id for record in retried} <= set(held) | _claimed_by(records, died_with_it)
        assert {record.retry_count for record in retried} == {1}
        assert not {record.worker for record in retried} & set(died_with_it)
    # The pod stayed, with a new process in it: nobody has scaled because of this.
    pods = wait_for_workers(namespace, "steady", WORKERS)
    assert {pod["metadata"]["uid"] for pod in pods} == before


def _claimed_by(records, workers):
    """The tasks of which one of these workers has spoilt an attempt."""
    return {
        task_id for task_id, record in records.items() if any(attempt.worker in workers for attempt in record.history)
    }
