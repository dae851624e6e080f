"""A pool is changed under load: new workers start, old ones finish what they have, and no task notices.

HEADRACE_DRILL=long gives the tasks the twenty seconds of the promise.
"""

from __future__ import annotations

import pytest

from headrace import TaskState
from tests.chaos.forms import by_length
from tests.cluster.process import run
from tests.support import images
from tests.support.operator import (
    apply,
    change,
    deploy_redis,
    deployments,
    producing,
    taskqueue,
    wait_for,
    wait_for_condition,
    wait_until_ready,
    worker_pods,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TASK_S = float(by_length(6, 20))
WORKERS, SLOTS = 2, 2
TASKS = 8 * WORKERS * SLOTS
NEXT_IMAGE = "headrace-worker:next"
# Much shorter than a task: if a busy worker were asked to stop, it would have to hand its tasks back.
GRACE_S = 2
TIMEOUT_S = TASKS * TASK_S + 300


@pytest.fixture
def next_image(cluster):
    """The same image under another name, in every node for pods."""
    if cluster.provider == "named":
        pytest.skip("bringing an image into the cluster takes kind")
    run(["docker", "tag", images.WORKER, NEXT_IMAGE], timeout_s=60, env=cluster.environment())
    images.bring(cluster, NEXT_IMAGE)
    return NEXT_IMAGE


@pytest.fixture
def loaded(namespace, operator):
    """A pool of which every worker is busy, and much more that waits."""
    deploy_redis(namespace)
    apply(
        namespace,
        taskqueue("orders"),
        workerpool("steady", ["orders"], replicas=WORKERS, concurrency=SLOTS, graceSeconds=GRACE_S),
    )
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    with producing(namespace, "orders") as producer:
        ids = producer.enqueue("rest", *([TASK_S] for _ in range(TASKS)))
        producer.wait_until_executing(WORKERS * SLOTS)
        yield producer, ids


def test_a_new_image_under_load_interrupts_no_task(namespace, loaded, next_image):
    rolled_over_without_a_trace(namespace, loaded, image=next_image)
    assert {pod["spec"]["containers"][0]["image"] for pod in worker_pods(namespace, "steady")} == {next_image}


def test_a_changed_environment_under_load_interrupts_no_task(namespace, loaded):
    variable = {"name": "COLOUR", "value": "green"}
    rolled_over_without_a_trace(namespace, loaded, template={"env": [variable]})
    for pod in worker_pods(namespace, "steady"):
        assert variable in pod["spec"]["containers"][0]["env"]


def test_workers_that_were_asked_to_go_are_taken_back_when_the_pool_is_changed_back(namespace, loaded):
    producer, ids = loaded
    (old,) = deployments(namespace, "steady")
    change(namespace, "workerpool/steady", template={"env": [{"name": "COLOUR", "value": "green"}]})
    wait_for(
        lambda: namespace.get("workerpool", "steady")["status"].get("draining"),
        "no worker of the former revision was asked to drain",
        TIMEOUT_S,
    )
    change(namespace, "workerpool/steady", template={"env": []})

    def is_back() -> bool:
        status = namespace.get("workerpool", "steady")["status"]
        return status["revision"] == old and set(deployments(namespace, "steady")) == {old} and not status["draining"]

    records = producer.completed(ids, TIMEOUT_S)
    assert {(record.retry_count, record.history) for record in records} == {(0, ())}
    wait_for(is_back, "the former revision did not come back", TIMEOUT_S)
    again = producer.enqueue("nothing", [1])
    producer.completed(again, TIMEOUT_S)


def test_a_pool_that_is_made_smaller_gives_up_idle_workers_only(namespace, loaded):
    producer, ids = loaded
    (revision,) = deployments(namespace, "steady")
    namespace.kubectl("scale", "workerpool/steady", "--replicas=1")
    records = producer.completed(ids, TIMEOUT_S)
    assert {(record.retry_count, record.history) for record in records} == {(0, ())}
    wait_for(lambda: len(worker_pods(namespace, "steady")) == 1, "no idle worker was given up", TIMEOUT_S)
    assert set(deployments(namespace, "steady")) == {revision}
    change(namespace, "workerpool/steady", maxReplicas=2)
    namespace.kubectl("scale", "workerpool/steady", "--replicas=5")
    wait_for_condition(namespace, "workerpool", "steady", "ScalingLimited", "True", reason="AtMaximum")


def rolled_over_without_a_trace(namespace, loaded, **new_spec):
    producer, ids = loaded
    (old,) = deployments(namespace, "steady")
    change(namespace, "workerpool/steady", **new_spec)

    seen: dict[str, str | None] = {}

    def watched() -> set[str]:
        """Note who has been at which task for a while, and return the revisions that are there."""
        now_s = producer.stats().at_s
        for record in producer.records(ids):
            # A claim that comes just as its worker is drained goes back at once: that is not an interruption.
            if record.state is TaskState.EXECUTING and now_s - (record.started_at_s or now_s) > 1:
                seen.setdefault(record.task_id, record.worker)
        return set(deployments(namespace, "steady"))

    wait_for(lambda: watched() - {old}, "no Deployment was made for the new revision", TIMEOUT_S)
    wait_for(lambda: old not in watched(), "the Deployment of the old revision did not go", TIMEOUT_S)
    records = {record.task_id: record for record in producer.completed(ids, TIMEOUT_S)}

    assert {(record.retry_count, record.history) for record in records.values()} == {(0, ())}
    assert {task_id: records[task_id].worker for task_id in seen} == seen, "a task changed hands while it ran"
    (new,) = deployments(namespace, "steady")
    finished_by = {record.worker or "" for record in records.values()}
    assert any(worker.startswith(f"steady-{old}-") for worker in finished_by)
    assert any(worker.startswith(f"steady-{new}-") for worker in finished_by)

    wait_for_condition(namespace, "workerpool", "steady", "Ready", "True")
    status = namespace.get("workerpool", "steady")["status"]
    assert status["revision"] == new
    assert [each["revision"] for each in status["revisions"]] == [new]
    assert len(worker_pods(namespace, "steady")) == WORKERS
