"""Redis is killed and comes back: conditions turn and heal, nothing is scaled, nothing is lost."""

from __future__ import annotations

import pytest

from tests.support.operator import (
    apply,
    condition,
    deploy_redis,
    every,
    kill_9,
    needs_a_shell_on_the_node,
    producing,
    restarts,
    taskqueue,
    wait_for,
    wait_for_condition,
    wait_until_ready,
    worker_pods,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORKERS, SLOTS = 2, 2
TASKS = 15 * WORKERS * SLOTS
# Longer than the outage: a task that was at work when Redis went is settled when it is back, as if nothing had been.
PATIENT = {"seconds": 180, "heartbeatSeconds": 10, "workerDeadAfterSeconds": 180}


def test_an_outage_of_redis_turns_conditions_and_nothing_else(namespace, operator):
    needs_a_shell_on_the_node(namespace.cluster)
    deploy_redis(namespace, durable=True)
    apply(
        namespace,
        taskqueue("orders", lease=PATIENT),
        workerpool("steady", ["orders"], replicas=WORKERS, concurrency=SLOTS),
    )
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    restarted = restarts(operator.pods())
    before = untouched(namespace)
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("rest", *([1.0] for _ in range(TASKS)))
        producer.wait_until_executing(WORKERS * SLOTS)

    (redis,) = namespace.pods("app=redis")

    def is_missed() -> bool:
        found = condition(namespace.get("taskqueue", "orders"), "BackendReachable")
        if found is not None and found["status"] == "False":
            return True
        # The kubelet starts it again at once, and from the second time on it waits longer and longer.
        kill_9(namespace, redis["metadata"]["name"])
        return False

    wait_for(is_missed, "nobody noticed that Redis was away")
    assert untouched(namespace) == before, "an outage was read as a reason to scale"
    wait_for_condition(namespace, "taskqueue", "orders", "BackendReachable", "True")
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])

    with producing(namespace, "orders") as producer:
        records = producer.completed(ids)
        assert {(record.retry_count, record.history) for record in records} == {(0, ())}
        assert producer.stats().counters["completed"] == TASKS
    assert untouched(namespace) == before
    assert restarts(operator.pods()) == restarted, "an operator was restarted for an outage that is not its own"


def untouched(namespace):
    """What changes when somebody scales or replaces a worker: a Deployment's generation, and the pods."""
    generations = {
        each["metadata"]["uid"]: (each["metadata"]["generation"], each["spec"]["replicas"])
        for each in every(namespace, "deployments", "headrace.dev/pool=steady")
    }
    return generations, {pod["metadata"]["uid"] for pod in worker_pods(namespace, "steady")}
