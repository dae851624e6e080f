"""``examples/by-hand.yaml``: Redis and two workers in a namespace that enforces the `restricted` security level."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Headrace, TaskHandle, TaskRecord, TaskState
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run
from tests.support.kubernetes import CONDITION_TIMEOUT_S, Namespace
from tests.support.waiting import eventually, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "by-hand.yaml"
QUEUE = "samples"
GRACE_S = 2
WORKERS, SLOTS = 2, 5


@pytest.fixture
async def app(namespace: Namespace) -> AsyncIterator[Headrace]:
    """The example with a short grace period, and this test as its producer."""
    manifest = EXAMPLE.read_text()
    assert manifest.count("--grace=10") == 1
    namespace.apply(manifest.replace("--grace=10", f"--grace={GRACE_S}"))
    namespace.wait_for_rollout("redis")
    namespace.wait_for_rollout("worker")
    with namespace.forwarded("service/redis", 6379) as port:
        async with Headrace(f"redis://127.0.0.1:{port}/0", tenant="samples") as producer:
            yield producer


def workers(namespace: Namespace) -> list[dict[str, Any]]:
    return namespace.pods("app=worker")


async def enqueue(app: Headrace, task: str, *arguments: list[Any]) -> list[TaskHandle[Any]]:
    remote = app.remote(task, queue=QUEUE)
    return await app.enqueue_many([remote.call(*each) for each in arguments])


async def all_completed(app: Headrace, handles: list[TaskHandle[Any]]) -> list[TaskRecord]:
    """The records of the tasks when the last of them has come to its end."""

    async def none_is_left() -> bool:
        stats = await app.stats(QUEUE)
        return stats.finished + stats.dead_letter == len(handles)

    await eventually(none_is_left, CONDITION_TIMEOUT_S, "the tasks did not come to their end")
    records = [await handle.record() for handle in handles]
    assert {record.state for record in records} == {TaskState.COMPLETED}
    return records


async def every_slot_is_taken(app: Headrace) -> bool:
    return (await app.stats(QUEUE)).executing >= WORKERS * SLOTS


def held_by(records: list[TaskRecord], pod: str) -> list[str]:
    """The ids of the tasks that a worker in this pod holds; a worker's name begins with its host's."""
    executing = [record for record in records if record.state is TaskState.EXECUTING]
    return [record.task_id for record in executing if (record.worker or "").startswith(pod)]


def test_a_pod_that_asks_for_more_than_restricted_allows_is_refused(namespace):
    with pytest.raises(ClusterProblem, match="violates PodSecurity"):
        namespace.kubectl("run", "careless", "--image=headrace-worker:dev", "--image-pull-policy=Never")


async def test_a_thousand_tasks_are_completed_across_nodes(namespace, app):
    handles = await enqueue(app, "nothing", *([number] for number in range(1000)))
    records = await all_completed(app, handles)
    assert [record.result for record in records] == list(range(1000))
    assert {record.retry_count for record in records} == {0}
    assert (await app.stats(QUEUE)).counters["completed"] == 1000

    # Whichever nodes the scheduler chose: with two for pods, some worker was not on the node of its Redis.
    redis_node = namespace.pods("app=redis")[0]["spec"]["nodeName"]
    nodes = json.loads(namespace.kubectl("get", "nodes", "--output=json"))["items"]
    if len(nodes) > 2:
        assert {pod["spec"]["nodeName"] for pod in workers(namespace)} != {redis_node}


async def test_the_tasks_of_a_deleted_pod_are_finished_or_handed_back_and_no_attempt_is_spent(namespace, app):
    # In each worker's hands: some that end within the grace period, and some that do not.
    handles = await enqueue(app, "rest", *([1.0 if number % 2 else 6.0] for number in range(2 * WORKERS * SLOTS)))
    await eventually(lambda: every_slot_is_taken(app), CONDITION_TIMEOUT_S, "the workers did not get busy")
    victim = workers(namespace)[0]["metadata"]["name"]
    held = held_by([await handle.record() for handle in handles], victim)
    namespace.kubectl("delete", "pod", victim, "--wait=false")

    records = {record.task_id: record for record in await all_completed(app, handles)}
    assert {(record.retry_count, record.history) for record in records.values()} == {(0, ())}
    finished_by = {task_id: records[task_id].worker or "" for task_id in held}
    finished_there = [task_id for task_id, worker in finished_by.items() if worker.startswith(victim)]
    assert {records[task_id].args[0] for task_id in finished_there} <= {1.0}, "longer ones do not fit into the grace"
    assert len(finished_there) < len(held), "nothing was handed back: was the worker busy?"


async def test_the_tasks_of_a_killed_worker_are_recovered_by_the_others(namespace, app):
    if namespace.cluster.provider == "named":
        pytest.skip("killing a process takes a shell on its node")
    handles = await enqueue(app, "rest", *([3.0] for _ in range(2 * WORKERS * SLOTS)))
    await eventually(lambda: every_slot_is_taken(app), CONDITION_TIMEOUT_S, "the workers did not get busy")
    victim = workers(namespace)[0]
    held = held_by([await handle.record() for handle in handles], victim["metadata"]["name"])
    assert held
    kill_container(namespace, victim)

    records = await all_completed(app, handles)
    assert (await app.stats(QUEUE)).counters["lease_expired"] >= 1
    retried = {record.task_id: record.retry_count for record in records if record.retry_count}
    assert retried
    assert set(retried.values()) == {1}
    name = victim["metadata"]["name"]
    wait_until(
        lambda: namespace.get("pod", name)["status"]["containerStatuses"][0]["restartCount"] == 1,
        CONDITION_TIMEOUT_S,
        "the killed container was not started anew",
    )


def kill_container(namespace: Namespace, pod: dict[str, Any], signal: str = "KILL") -> None:
    """A signal from the node: the first process of a container cannot be killed from within."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    kill = f"kill -{signal} $(grep -ls {container} /proc/[0-9]*/cgroup | cut -d/ -f3)"
    command = ["docker", "exec", pod["spec"]["nodeName"], "sh", "-c", kill]
    run(command, timeout_s=60, env=namespace.cluster.environment())
