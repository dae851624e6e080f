"""Without an API server workers go on; when it is back, so does the operator.

HEADRACE_DRILL=long makes the outage two minutes long.
"""

from __future__ import annotations

import time

import pytest

from tests.chaos.forms import by_length
from tests.support.operator import (
    AFTER_OUTAGE_TIMEOUT_S,
    api_server_stopped,
    apply,
    automatic,
    deploy_redis,
    deployments,
    needs_a_shell_on_the_node,
    producing,
    restarts,
    taskqueue,
    wait_for_size,
    wait_for_workers,
    wait_until_ready,
    worker_pods,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive, pytest.mark.slow]

OUTAGE_S = by_length(30, 120)
# What it may take the API server to go and to come back.
AROUND_S = 90
WORKERS, SLOTS = 2, 2
TASKS = WORKERS * SLOTS * (OUTAGE_S + AROUND_S)


def test_workers_go_on_while_there_is_no_api_server(namespace, operator):
    needs_a_shell_on_the_node(namespace.cluster)
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders"), workerpool("steady", ["orders"], replicas=WORKERS, concurrency=SLOTS))
    # Beside it a pool that follows its load: one worker would have to go meanwhile, and others to come.
    apply(namespace, taskqueue("bursts"), automatic("auto", ["bursts"], idleSeconds=OUTAGE_S / 2))
    wait_until_ready(namespace, queues=["orders", "bursts"], pools=["steady", "auto"])
    with producing(namespace, "bursts") as producer:
        bursts = producer.enqueue("rest", [OUTAGE_S + 30], [1])
        producer.wait_until_executing(1)
        bursts += producer.enqueue("rest", [OUTAGE_S + 30], [1], delay_s=OUTAGE_S)
    (before,) = deployments(namespace, "steady").values()
    restarted = restarts(operator.pods()) | restarts(worker_pods(namespace, "steady"))
    # All at once: a producer outside of the cluster has no way in while the API server is away.
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("rest", *([1.0] for _ in range(TASKS)))
        producer.wait_until_executing(WORKERS * SLOTS)

    operator.read_logs()
    with api_server_stopped(namespace.cluster):
        gone_s = time.time()
        time.sleep(OUTAGE_S)
        back_s = time.time()

    operator.wait_until_it_leads(AFTER_OUTAGE_TIMEOUT_S)
    with producing(namespace, "orders") as producer:
        records = producer.completed(ids, AFTER_OUTAGE_TIMEOUT_S)
        assert {(record.retry_count, record.history) for record in records} == {(0, ())}
        assert producer.stats().counters["completed"] == TASKS
    with producing(namespace, "bursts") as producer:
        records_of_bursts = producer.completed(bursts, AFTER_OUTAGE_TIMEOUT_S)
        assert {(record.retry_count, record.history) for record in records_of_bursts} == {(0, ())}
    wait_for_size(namespace, "auto", 0, AFTER_OUTAGE_TIMEOUT_S)
    # Tasks were not only finished in that time, but also claimed. The node's clock is this machine's.
    within = [
        record
        for record in records
        if gone_s < (record.started_at_s or 0.0) < (record.finished_at_s or back_s) < back_s
    ]
    assert len(within) >= OUTAGE_S, "the workers did not go on while the API server was away"

    (after,) = deployments(namespace, "steady").values()
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert restarts(operator.pods()) | restarts(worker_pods(namespace, "steady")) == restarted
    # And it is taken up again where it was left.
    namespace.kubectl("scale", "workerpool/steady", f"--replicas={WORKERS + 1}")
    wait_for_workers(namespace, "steady", WORKERS + 1, AFTER_OUTAGE_TIMEOUT_S)
