"""``python -m benchmarks.dashboard.scene``: the dashboard's picture, of a cluster at work.

In a cluster that stands and holds our images, with the chart's operator in it: two queues with pools that follow their
load, which comes in waves and bursts; some tasks fail, some are too slow. A Prometheus watches, and is asked the
dashboard's own queries at the end.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import time

from tests.cluster import lifecycle
from tests.cluster.screen import say, step
from tests.support import images
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    NAMESPACE,
    Operator,
    Producer,
    apply,
    deploy_redis,
    producing,
    taskqueue,
    wait_until_ready,
    workerpool,
)
from tests.support.prometheus import watching

_SHOP = "shop"
_WAVE_S = 240.0
_STEP_S = 1.0


def main() -> int:
    options = _parser().parse_args()
    cluster = lifecycle.standing(options.name)
    images.bring_prometheus(cluster)
    operator = Operator(Namespace(cluster, NAMESPACE))
    if not operator.release.is_there():
        operator.release.install()
        operator.wait_until_it_leads()
    namespace = Namespace(cluster, _SHOP)
    namespace.create()
    try:
        _set_up(namespace)
        with watching(namespace, {}) as watcher, producing(namespace, "orders") as producer:
            with step(f"Work for {options.minutes:g} minutes"):
                _work(producer, options.minutes * 60, random.Random(options.seed))
            return _draw(watcher.prometheus.url, options.minutes)
    finally:
        namespace.delete()


def _set_up(namespace: Namespace) -> None:
    deploy_redis(namespace)
    apply(namespace, taskqueue("orders"), taskqueue("mails"), *(_pool(name) for name in ("orders", "mails")))
    wait_until_ready(namespace, queues=["orders", "mails"], pools=["orders", "mails"])


def _pool(name: str) -> dict[str, object]:
    spec = {"concurrency": 4, "maxReplicas": 6, "targetDrainSeconds": 5, "idleSeconds": 15, "graceSeconds": 5}
    made = workerpool(name, [name], **spec)
    del made["spec"]["replicas"]
    return made


def _work(orders: Producer, seconds: float, chance: random.Random) -> None:
    mails = orders.for_queue("mails")
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        per_step = 3.0 + 3.0 * math.sin(2 * math.pi * elapsed_s / _WAVE_S)
        some = [[chance.uniform(0.2, 1.5)] for _ in range(round(chance.uniform(0, 2 * per_step)))]
        if some:
            orders.enqueue("rest", *some, priority=chance.choice(("high", "medium", "low")))
        if chance.random() < 0.02:
            mails.enqueue("rest", *([chance.uniform(0.5, 3.0)] for _ in range(60)))
        if chance.random() < 0.1:
            orders.enqueue("fail", ["no such customer"])
        if chance.random() < 0.03:
            mails.enqueue("rest", [5.0], timeout_s=1.0, max_retries=1)
        time.sleep(_STEP_S)


def _draw(url: str, minutes: float) -> int:
    say("Drawing what Prometheus has seen.")
    shown = ["--variable", f"namespace={_SHOP}", "--variable", "pool=orders"]
    command = [sys.executable, "-m", "benchmarks.dashboard", "--prometheus", url, "--minutes", f"{minutes:g}"]
    return subprocess.run([*command, "--scrape-interval", "1", *shown], check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dashboard.scene",
        description="Draw the dashboard of a cluster at work.",
        epilog="Example: make cluster images-load NAME=scene && python -m benchmarks.dashboard.scene --name scene",
    )
    parser.add_argument("--name", default="headrace", help="the cluster (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long it works (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the load (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
