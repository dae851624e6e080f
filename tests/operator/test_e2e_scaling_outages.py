"""Pools that follow their load while Redis or the leading operator goes away: nothing is changed by mistake.

HEADRACE_DRILL=long has Redis away for two minutes, and kills ten leaders. What happens without an API server is part of
`test_e2e_api_server_outage`.
"""

from __future__ import annotations

import time

import pytest

from headrace.model.states import WorkerState
from tests.chaos.forms import by_length
from tests.e2e.test_by_hand import kill_container
from tests.support.operator import (
    apply,
    automatic,
    deploy_redis,
    deployments,
    kill_9,
    needs_a_shell_on_the_node,
    producing,
    taskqueue,
    told,
    wait_for,
    wait_for_condition,
    wait_for_size,
    wait_until_ready,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

OUTAGE_S = by_length(20, 120)
ROUNDS = by_length(1, 10)
# Longer than the outage: a task that was at work when Redis went is settled when it is back, as if nothing had been.
PATIENT = {"seconds": 300, "heartbeatSeconds": 5, "workerDeadAfterSeconds": 300}


def test_a_redis_that_does_not_answer_is_not_read_as_an_empty_queue(namespace, operator):
    needs_a_shell_on_the_node(namespace.cluster)
    deploy_redis(namespace)
    # A worker that has nothing to do would have to go in the middle of the outage.
    pool = automatic("auto", ["orders"], idleSeconds=OUTAGE_S / 2, minReplicas=0)
    apply(namespace, taskqueue("orders", lease=PATIENT), pool)
    wait_until_ready(namespace, queues=["orders"], pools=["auto"])
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("rest", [OUTAGE_S + 20], [OUTAGE_S + 20], [0.1])
        producer.wait_until_executing(2)
        wait_for(lambda: told(namespace, "auto") == 3, "three workers were not asked for")
        # The third may come when its task has been done by another; it is there, and idle.
        wait_for(lambda: len(producer.workers()) == 3, "the third worker did not come")
    before = generations(namespace)
    (redis,) = namespace.pods("app=redis")
    kill_container(namespace, redis, "STOP")
    try:
        ends_s = time.monotonic() + OUTAGE_S
        wait_for_condition(namespace, "workerpool", "auto", "ScalingActive", "False", reason="BackendUnreachable")
        while time.monotonic() < ends_s:
            assert generations(namespace) == before, "an outage was read as a reason to scale"
            time.sleep(2)
    finally:
        kill_container(namespace, redis, "CONT")
    wait_for_condition(namespace, "workerpool", "auto", "ScalingActive", "True")
    with producing(namespace, "orders") as producer:
        records = producer.completed(ids)
        assert {(record.retry_count, record.history) for record in records} == {(0, ())}
    wait_for_size(namespace, "auto", 0)


def generations(namespace):
    return {name: each["metadata"]["generation"] for name, each in deployments(namespace, "auto").items()}


@pytest.mark.disruptive
def test_a_leader_that_is_killed_in_the_middle_of_a_drain_has_a_successor_who_ends_it(namespace, operator):
    needs_a_shell_on_the_node(namespace.cluster)
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders"), automatic("auto", ["orders"], idleSeconds=2))
    wait_until_ready(namespace, queues=["orders"], pools=["auto"])
    with producing(namespace, "orders") as producer:
        for number in range(ROUNDS):
            producer.completed(producer.enqueue("rest", *([1] for _ in range(3))))
            wait_for(
                lambda: any(each.state is WorkerState.DRAINING for each in producer.workers()),
                "no worker was asked to drain",
                poll_s=0.02,
            )
            deposed = operator.leader()
            operator.read_logs()
            assert kill_9(operator.namespace, deposed)
            # In every other round there is work again before somebody leads: what was drained is needed.
            ids = producer.enqueue("rest", [1], [1]) if number % 2 == 0 else []
            operator.wait_for_successor(deposed)
            records = producer.completed(ids) if ids else []
            assert {(record.retry_count, record.history) for record in records} <= {(0, ())}
            wait_for_size(namespace, "auto", 0)
            operator.wait_until_it_leads()
