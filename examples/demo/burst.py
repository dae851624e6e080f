"""The burst: many tasks at once for a queue without workers, watched until the last worker has gone again.

What belongs here: the tasks, and the figures of queue and pods while they are worked off. The cluster and what is
installed in it belong to `ground`, how figures look to `view`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace import Headrace, QueueStats
from tests.cluster.screen import say, step
from tests.support.kubernetes import Namespace

from .view import Moment, Outcome, shown

MANIFEST = Path(__file__).parent / "demo.yaml"
NAME = "demo"
"""What the TaskQueue and the WorkerPool of the manifest are called."""
LEVELS = ("critical", "high", "normal", "low", "idle")
# How long it may take until all is done and no pod is left, the longest being to wait for a slow machine.
PATIENCE_S = 300.0
_LOOK_EVERY_S = 0.5
_READY_TIMEOUT_S = 120.0


def run(namespace: Namespace, redis_url: str, tasks: int, console: Console) -> Outcome:
    """Declare queue and workers, enqueue so many tasks, and show what becomes of them."""
    with step("Applying examples/demo/demo.yaml"):
        namespace.apply(MANIFEST)
        namespace.wait_for("condition=Ready", f"taskqueue/{NAME}", timeout_s=_READY_TIMEOUT_S)
    app = Headrace(redis_url, tenant=namespace.name)
    try:
        began_s = time.monotonic()
        task_ids = _enqueued(app, tasks)
        say(f"{tasks} tasks of about a second enqueued in {time.monotonic() - began_s:.2f} s. There is no worker yet.")
        with shown(console, tasks) as show:
            return _watched(namespace, app, task_ids, show, began_s)
    finally:
        app.blocking.close()


def _enqueued(app: Headrace, tasks: int) -> list[str]:
    """Tasks on all levels; the answer is their ids."""
    rng = random.Random(2026)
    rest = {level: app.remote("rest", queue=NAME, priority=level) for level in LEVELS}
    calls = [rest[rng.choice(LEVELS)].call(rng.uniform(0.5, 1.5)) for _ in range(tasks)]
    return [handle.id for handle in app.blocking.enqueue_many(calls)]


def _watched(
    namespace: Namespace, app: Headrace, task_ids: list[str], show: Callable[[Moment], None], began_s: float
) -> Outcome:
    """Look on until all tasks have ended and no pod is left, or for as long as patience lasts.

    ``began_s`` is when the tasks were enqueued, by the steady clock.
    """
    most_pods = 0
    all_done_s: float | None = None
    zero_s: float | None = None
    while True:
        stats = app.blocking.stats(NAME)
        pods, pool = _looked_at(namespace)
        moment = _moment(time.monotonic() - began_s, stats, pods, pool)
        show(moment)
        most_pods = max(most_pods, moment.pods)
        if all_done_s is None and stats.finished + stats.dead_letter >= len(task_ids):
            all_done_s = moment.elapsed_s
        if all_done_s is not None and not pods:
            zero_s = moment.elapsed_s
        if zero_s is not None or moment.elapsed_s > PATIENCE_S:
            break
        time.sleep(_LOOK_EVERY_S)
    return Outcome(
        tasks=len(task_ids),
        completed=moment.completed,
        most_pods=most_pods,
        first_start_s=_first_start_s(app, task_ids),
        all_done_s=all_done_s,
        zero_s=zero_s,
        decisions=[told(each) for each in reversed(pool.get("status", {}).get("recentDecisions", []))],
    )


def _looked_at(namespace: Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The worker pods and the pool. In one call: each is a process of its own, beside the workers."""
    items = json.loads(namespace.kubectl("get", "pods,workerpools", "--output=json"))["items"]
    pods = [each for each in items if each["metadata"].get("labels", {}).get("headrace.dev/pool") == NAME]
    (pool,) = (each for each in items if each["kind"] == "WorkerPool")
    return pods, pool


def _moment(elapsed_s: float, stats: QueueStats, pods: list[dict[str, Any]], pool: dict[str, Any]) -> Moment:
    last = pool.get("status", {}).get("lastDecision")
    return Moment(
        elapsed_s=elapsed_s,
        waiting={name: level.depth for name, level in stats.levels.items()},
        executing=stats.executing,
        completed=stats.counters.get("completed", 0),
        pods=len(pods),
        ready=sum(_is_ready(pod) for pod in pods),
        decision=told(last) if last else "",
    )


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def told(decision: dict[str, Any]) -> str:
    """A decision of the pool's status in one line."""
    at = decision["time"].partition("T")[2][:8]
    return f"{at}  {decision['from']} → {decision['replicas']}  {decision['reason']}: {decision['message']}"


def _first_start_s(app: Headrace, task_ids: list[str]) -> float | None:
    """From the first task that was enqueued to the first that was started, by Redis' clock."""
    records = [app.blocking.handle(NAME, task_id).record() for task_id in task_ids]
    started_at_s = [record.started_at_s for record in records if record.started_at_s is not None]
    return min(started_at_s) - min(record.created_at_s for record in records) if started_at_s else None
