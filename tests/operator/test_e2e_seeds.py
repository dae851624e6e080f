"""One manifest per seed: apply it, and tasks of all its levels are run; what kubectl shows is true."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import TaskState, WorkerActivity
from tests.cluster.problem import ClusterProblem
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    EXAMPLES,
    Producer,
    deploy_redis,
    every,
    producing,
    tables,
    wait_for,
    wait_until_ready,
    worker_pods,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEEDS = ("000", "001", "002", "003", "004")
PER_LEVEL = 4
# Longer than it takes to look at it: it is stopped when it has been seen.
ENDLESS_S = 250.0


def shown(namespace: Namespace, kind: str, name: str) -> dict[str, str]:
    """What `kubectl get tq,wp` has in the object's line."""
    return tables(namespace, "tq,wp")[f"{kind}.headrace.dev/{name}"]


def wait_until_shown(namespace: Namespace, kind: str, name: str, **wanted: str) -> None:
    def is_shown() -> bool:
        row = shown(namespace, kind, name)
        return {column: row[column] for column in wanted} == wanted

    wait_for(is_shown, f"kubectl did not show {wanted} for the {kind} {name}")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_example_of_a_seed_runs_its_tasks_and_shows_true_figures(namespace, operator, seed):
    deploy_redis(namespace)
    namespace.apply(EXAMPLES / f"taskqueue-seed-{seed}.yaml")
    queues, pools = every(namespace, "taskqueues"), every(namespace, "workerpools")
    assert queues
    assert pools
    wait_until_ready(
        namespace,
        queues=[queue["metadata"]["name"] for queue in queues],
        pools=[pool["metadata"]["name"] for pool in pools],
    )
    served = {name: pool for pool in pools for name in pool["spec"]["queues"]}
    for queue in queues:
        name, spec = queue["metadata"]["name"], queue["spec"]
        pool = served[name]["metadata"]["name"]
        with producing(namespace, spec.get("queue", name), tenant=spec.get("tenant")) as producer:
            tasks_of_every_level_wait_and_complete(namespace, queue, producer)
            tasks_at_work_are_shown(namespace, name, pool, producer)
            a_dead_letter_is_shown(namespace, name, producer)
        number = len(worker_pods(namespace, pool))
        assert number > 0
        wait_until_shown(
            namespace, "workerpool", pool, DESIRED=str(number), READY=str(number), BUSY="0", IDLE=str(number)
        )


def tasks_of_every_level_wait_and_complete(namespace: Namespace, queue: dict[str, Any], producer: Producer) -> None:
    name = queue["metadata"]["name"]
    levels = [level["name"] for level in queue["spec"]["levels"]]
    number = PER_LEVEL * len(levels)
    # Nothing is handed out while the queue is paused, so the figures stand still until they have been looked at.
    producer.app.pause(producer.queue)
    ids = {
        level: producer.enqueue("nothing", *([each] for each in range(PER_LEVEL)), priority=level) for level in levels
    }
    wait_until_shown(namespace, "taskqueue", name, DEPTH=str(number), EXECUTING="0", READY="True")
    status = namespace.get("taskqueue", name)["status"]
    assert {level["name"]: level["depth"] for level in status["levels"]} == dict.fromkeys(levels, PER_LEVEL)
    assert "oldestTime" in status
    assert shown(namespace, "taskqueue", name)["OLDEST"]
    assert status["paused"] is True

    producer.app.resume(producer.queue)
    for level, of_level in ids.items():
        records = producer.completed(of_level)
        assert [record.result for record in records] == list(range(PER_LEVEL))
        assert {(record.priority, record.retry_count) for record in records} == {(level, 0)}
    wait_until_shown(namespace, "taskqueue", name, DEPTH="0", EXECUTING="0", OLDEST="", DEAD="0", READY="True")


def tasks_at_work_are_shown(namespace: Namespace, queue: str, pool: str, producer: Producer) -> None:
    ids = producer.enqueue("rest", [ENDLESS_S], [ENDLESS_S])
    producer.wait_until_executing(2)
    busy = sum(worker.activity is WorkerActivity.BUSY for worker in producer.workers())
    wait_until_shown(namespace, "taskqueue", queue, EXECUTING="2", DEPTH="0")
    wait_until_shown(namespace, "workerpool", pool, BUSY=str(busy))
    producer.app.cancel(producer.queue, ids)
    assert {record.state for record in producer.finished(ids)} == {TaskState.CANCELLED}
    wait_until_shown(namespace, "taskqueue", queue, EXECUTING="0")


def a_dead_letter_is_shown(namespace: Namespace, queue: str, producer: Producer) -> None:
    ids = producer.enqueue("rest", [ENDLESS_S], timeout_s=1.0, max_retries=0)
    assert [record.state for record in producer.finished(ids)] == [TaskState.DEAD_LETTER]
    wait_until_shown(namespace, "taskqueue", queue, DEAD="1")


EXPLAINED = (
    *("taskqueue.spec", "taskqueue.spec.redis", "taskqueue.spec.levels", "taskqueue.spec.lease", "taskqueue.status"),
    *("workerpool.spec", "workerpool.spec.template", "workerpool.spec.template.volumes", "workerpool.status"),
)


@pytest.mark.parametrize("field", EXPLAINED)
def test_kubectl_explains_every_field(cluster, operator, field):
    anywhere = Namespace(cluster, "default")

    def said_of_it() -> str:
        try:
            return anywhere.kubectl("explain", field)
        except ClusterProblem:
            return ""  # what is explained is published some seconds after the kind itself

    said = wait_for(said_of_it, f"kubectl did not explain {field}")
    assert "DESCRIPTION:" in said
    assert "<no description>" not in said
    assert "<empty>" not in said
