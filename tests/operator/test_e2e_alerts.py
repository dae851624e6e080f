"""A Prometheus in the cluster sees what is wrong, tells it by the chart's alerts, and sees it heal."""

from __future__ import annotations

import pytest

from tests.support.operator import (
    apply,
    change,
    deploy_redis,
    producing,
    taskqueue,
    wait_until_ready,
    workerpool,
)
from tests.support.prometheus import watching

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# The chart's own thresholds, where a test can wait for them; otherwise as much smaller as the test is shorter.
WINDOW = "30s"
VALUES = {
    "alerts": {
        "lookback": "10s",
        "noActiveWorkers": {"for": "5s"},
        "highPriorityDepth": {"for": "2s", "threshold": 20},
        "failureRate": {"window": WINDOW, "minTasks": 5},
        "deadLetterGrowth": {"window": WINDOW},
        "queuePaused": {"for": "5s"},
        "redisUnreachable": {"for": "3s"},
    }
}
QUEUES = ("stuck", "failing", "dying", "paused", "idle")
MANY = 30


def test_alerts_fire_when_something_is_wrong_and_resolve_when_it_is_over(namespace, operator, prometheus_image):
    deploy_redis(namespace)
    apply(
        namespace,
        *(taskqueue(name, **({"paused": True} if name == "paused" else {})) for name in QUEUES),
        # Nobody serves the queue `idle` either, but nothing waits there.
        workerpool("missing", ["stuck", "idle"], replicas=0),
        workerpool("steady", ["failing", "dying", "paused"], replicas=1, concurrency=10),
    )
    wait_until_ready(namespace, queues=QUEUES, pools=["steady", "missing"])
    with watching(namespace, VALUES) as watcher:
        watcher.wait_until_reading(1)
        assert watcher.fired() == set()

        with producing(namespace, "stuck") as stuck:
            stuck.enqueue("nothing", *([number] for number in range(MANY)), priority="high")
            stuck.for_queue("failing").enqueue("fail", *(["on purpose"] for _ in range(MANY)))
            # Too slow, and not tried again.
            dying = stuck.for_queue("dying")
            dying.enqueue("rest", *([60.0] for _ in range(MANY)), timeout_s=0.5, max_retries=0)
            stuck.for_queue("paused").enqueue("nothing", [1])
        wrong = {
            ("HeadraceNoActiveWorkers", "stuck"),
            ("HeadraceHighPriorityDepth", "stuck"),
            ("HeadraceFailureRate", "failing"),
            ("HeadraceFailureRate", "dying"),
            ("HeadraceDeadLetterGrowth", "dying"),
            ("HeadraceQueuePaused", "paused"),
        }
        watcher.wait_until_fired(*wrong)

        change(namespace, "workerpool/missing", replicas=1)
        change(namespace, "taskqueue/paused", paused=False)
        watcher.wait_until_resolved(*wrong)
        assert watcher.fired() == wrong, "something has fired that was not wrong"

        unreachable = {("HeadraceRedisUnreachable", queue) for queue in QUEUES}
        namespace.kubectl("scale", "deployment/redis", "--replicas=0")
        watcher.wait_until_fired(*unreachable)
        namespace.kubectl("scale", "deployment/redis", "--replicas=1")
        watcher.wait_until_resolved(*unreachable)
        assert watcher.fired() == wrong | unreachable, "an outage was read as something else"
