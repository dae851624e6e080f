"""Pools that follow their load, in a real cluster: from zero and back to it, and what others may have to say."""

from __future__ import annotations

import json

import pytest

from tests.support.operator import (
    IDLE_S,
    apply,
    automatic,
    change,
    condition,
    deploy_redis,
    event,
    is_ready,
    producing,
    taskqueue,
    told,
    wait_for,
    wait_for_condition,
    wait_for_size,
    wait_for_workers,
    wait_until_ready,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def ground(namespace, operator):
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders"))
    wait_until_ready(namespace, queues=["orders"])
    return namespace


@pytest.fixture
def producer(ground):
    with producing(ground, "orders") as found:
        yield found


def status(namespace, pool):
    return namespace.get("workerpool", pool)["status"]


def largest(namespace, pool):
    """The most pods that were decided on lately. How soon each of them runs is the machine's affair."""
    return max(each["replicas"] for each in status(namespace, pool)["recentDecisions"])


# ── with the load ────────────────────────────────────────────────────────────────────────────────────


def test_workers_appear_when_there_is_work_and_go_when_there_is_none(ground, producer):
    apply(ground, automatic("auto", ["orders"], maxReplicas=4))
    wait_until_ready(ground, pools=["auto"])
    assert told(ground, "auto") == 0
    ids = producer.enqueue("rest", *([2] for _ in range(3)))
    records = producer.completed(ids)
    assert {(record.retry_count, record.history) for record in records} == {(0, ())}
    wait_for_size(ground, "auto", 0)

    found = status(ground, "auto")
    last, *earlier = found["recentDecisions"]
    assert (last["replicas"], last["reason"]) == (0, "Idle")
    assert (earlier[-1]["from"], earlier[-1]["replicas"], earlier[-1]["reason"]) == (0, 3, "Backlog")
    assert found["lastDecision"]["inputs"]["idle_seconds"] == IDLE_S
    assert "3 workers are needed" in event(ground, "WorkerPool", "auto", "ScaledUp")["message"]
    event(ground, "WorkerPool", "auto", "ScaledDown")


def test_a_pool_keeps_its_minimum_and_stays_within_its_maximum(ground, producer):
    apply(ground, automatic("auto", ["orders"], minReplicas=1, maxReplicas=2))
    wait_for_workers(ground, "auto", 1)
    ids = producer.enqueue("rest", *([3] for _ in range(6)))
    wait_for_condition(ground, "workerpool", "auto", "ScalingLimited", "True", reason="AtMaximum")
    assert told(ground, "auto") == 2
    producer.completed(ids)
    wait_for_size(ground, "auto", 1)
    wait_for_condition(ground, "workerpool", "auto", "ScalingLimited", "False")
    # What is idle beyond idleSeconds stays, because it is the minimum: there are two more looks at least.
    before = status(ground, "auto")
    again = producer.enqueue("nothing", [1])
    producer.completed(again)
    assert told(ground, "auto") == 1
    assert before["recentDecisions"][0]["replicas"] == 1


@pytest.mark.disruptive
def test_work_that_comes_while_a_worker_is_set_aside_takes_it_back(ground, producer, operator):
    apply(ground, automatic("auto", ["orders"], minReplicas=2, maxReplicas=2))
    (one, _) = wait_for_workers(ground, "auto", 2)
    with operator.stopped():
        # As a leader would leave it that was killed between asking and removing.
        drained = next(each for each in producer.workers() if each.host == one["metadata"]["name"])
        with producer._redis() as client:
            client.hset(f"hr:{{{ground.name}/orders}}:worker:{drained.worker}", "state", "draining")
        wait_for(
            lambda: not is_ready(ground.get("pod", one["metadata"]["name"])), "the drained worker did not turn unready"
        )
    wait_for_workers(ground, "auto", 2)
    assert {each.parked for each in producer.workers()} == {False}
    producer.completed(producer.enqueue("rest", [2], [2]))


def test_a_delayed_task_finds_a_worker_when_it_is_due(ground, producer):
    apply(ground, automatic("auto", ["orders"]))
    wait_until_ready(ground, pools=["auto"])
    (task,) = producer.enqueue("nothing", [1], delay_s=8)
    # The pod is asked for before the task is due: as long before as it takes to start one.
    wait_for(lambda: told(ground, "auto") == 1, "no pod was asked for", poll_s=0.2)
    assert producer.record(task).started_at_s is None
    producer.completed([task])


def test_tasks_that_no_worker_of_the_pool_can_run_ask_for_none(ground, producer):
    apply(ground, automatic("plain", ["orders"]), automatic("gpu", ["orders"], capabilities=["gpu"]))
    wait_until_ready(ground, pools=["plain", "gpu"])
    ids = producer.enqueue("nothing", [1], [2], required_capabilities=["gpu"])
    producer.completed(ids)
    assert status(ground, "plain").get("recentDecisions", []) == []
    assert status(ground, "gpu")["recentDecisions"]


def test_a_paused_queue_needs_nobody(ground, producer):
    change(ground, "taskqueue/orders", paused=True)
    wait_for_condition(ground, "taskqueue", "orders", "Paused", "True")
    apply(ground, automatic("auto", ["orders"]))
    wait_until_ready(ground, pools=["auto"])
    ids = producer.enqueue("nothing", [1])
    wait_for(lambda: ground.get("taskqueue", "orders")["status"]["depth"] == 1, "the task was not seen")
    assert told(ground, "auto") == 0
    change(ground, "taskqueue/orders", paused=False)
    producer.completed(ids)


def test_two_queues_add_up(namespace, operator):
    deploy_redis(namespace)
    apply(namespace, taskqueue("one"), taskqueue("two"), automatic("auto", ["one", "two"]))
    wait_until_ready(namespace, queues=["one", "two"], pools=["auto"])
    with producing(namespace, "one") as one, producing(namespace, "two") as two:
        first, second = one.enqueue("rest", [4], [4]), two.enqueue("rest", [4])
        one.completed(first)
        two.completed(second)
    wait_for_size(namespace, "auto", 0)
    assert largest(namespace, "auto") == 3


# ── when something is in the way ─────────────────────────────────────────────────────────────────────


def test_pods_that_cannot_start_do_not_run_away(ground, producer):
    apply(ground, automatic("auto", ["orders"], image="headrace-worker:no-such-tag", imagePullPolicy="Never"))
    producer.enqueue("nothing", [1], [2])
    found = wait_for_condition(ground, "workerpool", "auto", "ScalingLimited", "True", reason="ImageNotPulled")
    assert "spec.image" in found["message"]
    assert told(ground, "auto") == 2
    change(ground, "workerpool/auto", image=workerpool("x", ["orders"])["spec"]["image"])
    wait_for(lambda: producer.stats().waiting == 0, "the tasks were not run when the image was there")
    wait_for_size(ground, "auto", 0)


# ── others who have a say ────────────────────────────────────────────────────────────────────────────


def test_a_paused_pool_is_left_as_it_is(ground, producer):
    apply(ground, automatic("auto", ["orders"], minReplicas=1))
    wait_for_workers(ground, "auto", 1)
    change(ground, "workerpool/auto", paused=True)
    wait_for_condition(ground, "workerpool", "auto", "ScalingActive", "False", reason="Paused")
    ids = producer.enqueue("rest", *([1] for _ in range(4)))
    # One worker does all of it, though four were needed.
    assert len({record.worker for record in producer.completed(ids)}) == 1
    assert told(ground, "auto") == 1
    change(ground, "workerpool/auto", paused=False)
    producer.completed(producer.enqueue("rest", *([3] for _ in range(3))))
    wait_for_size(ground, "auto", 1)
    assert largest(ground, "auto") == 3


def test_a_size_that_somebody_fixes_holds_until_it_is_removed(ground, producer):
    apply(ground, automatic("auto", ["orders"], maxReplicas=4))
    wait_until_ready(ground, pools=["auto"])
    change(ground, "workerpool/auto", replicas=2)
    wait_for_workers(ground, "auto", 2)
    wait_for_condition(ground, "workerpool", "auto", "ScalingActive", "True", reason="FixedSize")
    producer.completed(producer.enqueue("rest", *([1] for _ in range(6))))
    ground.kubectl("scale", "workerpool/auto", "--replicas=1")
    wait_for_size(ground, "auto", 1)
    ground.kubectl("patch", "workerpool/auto", "--type=json", '--patch=[{"op": "remove", "path": "/spec/replicas"}]')
    wait_for_condition(ground, "workerpool", "auto", "ScalingActive", "True", reason="FollowsLoad")
    wait_for_size(ground, "auto", 0)


def test_a_horizontal_pod_autoscaler_has_its_way_through_the_scale_subresource(ground, producer):
    apply(ground, automatic("auto", ["orders"], maxReplicas=4))
    wait_until_ready(ground, pools=["auto"])
    change(ground, "workerpool/auto", replicas=1)
    target = {"apiVersion": "headrace.dev/v1alpha1", "kind": "WorkerPool", "name": "auto"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "theirs"},
        "spec": {
            "scaleTargetRef": target,
            # Its minimum needs no metrics, which this cluster does not have.
            "minReplicas": 2,
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }
    ground.apply(json.dumps(scaler))
    wait_for(lambda: ground.get("workerpool", "auto")["spec"]["replicas"] == 2, "the autoscaler did not scale")
    wait_for_workers(ground, "auto", 2)
    found = condition(ground.get("workerpool", "auto"), "ScalingActive")
    assert found is not None
    assert found["reason"] == "FixedSize"
