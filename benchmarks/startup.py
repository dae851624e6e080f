"""How long a queue that scales from zero waits: a worker's Deployment from 0 to 1, beside containers that only sleep.

``python -m benchmarks.startup`` measures in a cluster that stands and holds our images (``make cluster images-load``).
All Deployments run the worker image under the same settings, so that what differs is what the worker does itself:

sleeper         tells the time and sleeps, without a probe
probed sleeper  the same with a readiness probe that always succeeds. The kubelet looks once per second at a container
                with a probe, so this one is what a worker's time to Ready is to be compared with

A task waits in Redis before each start of a worker. All times are told by the one clock of this machine: when `kubectl
scale` is called, when the sleeper's command ran or Redis saw the task claimed, and when the API server's watch told
that the pod is Ready.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace import Headrace, QueueConfig
from tests.cluster import lifecycle
from tests.cluster.process import mortal
from tests.support.kubernetes import Namespace
from tests.support.waiting import wait_until

EXAMPLE = Path(__file__).parents[1] / "examples" / "by-hand.yaml"
TIMEOUT_S = 120.0
ALLOWED_MS = 300.0
"""What a worker may take beyond a container that only sleeps."""
WORKER, SLEEPER, PROBED = "worker", "sleeper", "probed-sleeper"

_READINESS = '--output=jsonpath={.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\\n"}'


@dataclass(frozen=True)
class Start:
    """One start, in milliseconds after the call of `kubectl scale`."""

    at_work_ms: float
    ready_ms: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description="Measure how a worker starts.")
    parser.add_argument("--name", default="headrace", help="the cluster (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=10, help="starts of each kind, the first not counted (default: %(default)s)"
    )
    options = parser.parse_args()
    namespace = Namespace(lifecycle.standing(options.name), f"startup-{secrets.token_hex(4)}")
    namespace.create()
    try:
        starts = _measure(namespace, options.rounds)
    finally:
        namespace.delete()
    return _tell(starts)


def _measure(namespace: Namespace, rounds: int) -> dict[str, list[Start]]:
    namespace.apply(EXAMPLE.read_text().replace("replicas: 2", "replicas: 0"))
    for name, probe in ((SLEEPER, None), (PROBED, {"exec": {"command": ["true"]}, "periodSeconds": 1})):
        namespace.apply(sleeper(namespace.get("deployment", WORKER), name, probe))
    namespace.wait_for_rollout("redis")
    starts: dict[str, list[Start]] = {WORKER: [], SLEEPER: [], PROBED: []}
    with namespace.forwarded("service/redis", 6379) as port:
        app = Headrace(
            f"redis://127.0.0.1:{port}/0", tenant="samples", queues=[QueueConfig("samples", lease_s=6, heartbeat_s=2)]
        )
        for _ in range(rounds):
            for name, measured in starts.items():
                measured.append(start(namespace, name, app if name == WORKER else None))
    # The first ones bring the image's files into memory.
    return {name: measured[1:] for name, measured in starts.items()}


def sleeper(worker: dict[str, Any], name: str, probe: dict[str, Any] | None) -> str:
    """The worker's Deployment with a sleeping command, and with this readiness probe or none."""
    spec = worker["spec"]
    spec["selector"]["matchLabels"] = spec["template"]["metadata"]["labels"] = {"app": name}
    pod = spec["template"]["spec"]
    # As the first process of its container, sleep does not hear SIGTERM.
    pod["terminationGracePeriodSeconds"] = 0
    (container,) = pod["containers"]
    container["command"], container["args"] = ["sh", "-c", "date +%s.%N; exec sleep infinity"], []
    container["readinessProbe"] = probe
    del container["livenessProbe"]
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})


def start(namespace: Namespace, name: str, app: Headrace | None) -> Start:
    """Scale it from 0 to 1 and back. With an app it is a worker, for which a task waits, otherwise a sleeper."""
    task = None if app is None else app.remote("nothing", queue="samples").blocking.enqueue(0)
    with _readiness(namespace, name) as lines:
        scaled_s = time.time()
        namespace.kubectl("scale", f"deployment/{name}", "--replicas=1")
        pod = _ready_pod(lines)
        ready_s = time.time()
    if task is None:
        at_work_s = float(namespace.logs(pod))
    else:
        at_work_s = wait_until(lambda: task.record().started_at_s, TIMEOUT_S, "the task was not claimed")
    namespace.kubectl("scale", f"deployment/{name}", "--replicas=0")
    namespace.wait_for("delete", f"pod/{pod}")
    return Start((at_work_s - scaled_s) * 1000, (ready_s - scaled_s) * 1000)


@contextmanager
def _readiness(namespace: Namespace, app: str) -> Iterator[Iterator[str]]:
    """Lines that tell a pod's name and whether it is Ready, as soon as the API server knows."""
    command = [
        "kubectl",
        f"--namespace={namespace.name}",
        "get",
        "pods",
        f"--selector=app={app}",
        "--watch",
        _READINESS,
    ]
    env = os.environ | namespace.cluster.environment()
    with subprocess.Popen(
        mortal(["timeout", f"{TIMEOUT_S:g}", *command]), stdout=subprocess.PIPE, text=True, env=env
    ) as watch:
        assert watch.stdout is not None
        try:
            yield iter(watch.stdout)
        finally:
            watch.terminate()


def _ready_pod(lines: Iterator[str]) -> str:
    for line in lines:
        pod, _, ready = line.strip().partition(" ")
        if ready == "True":
            return pod
    raise TimeoutError(f"no pod became Ready within {TIMEOUT_S:g} s")


def _tell(starts: dict[str, list[Start]]) -> int:
    title = f"{len(starts[WORKER])} starts of each: medians after kubectl scale, and the range"
    table = Table("", "at work", "Ready", title=title)
    for name, measured in starts.items():
        at_work, ready = [start.at_work_ms for start in measured], [start.ready_ms for start in measured]
        table.add_row(name, _told(at_work), _told(ready))
    console = Console(width=100)
    console.print(table)
    claim_ms = _median_at_work(starts[WORKER]) - _median_at_work(starts[SLEEPER])
    ready_ms = _median_ready(starts[WORKER]) - _median_ready(starts[PROBED])
    console.print(
        f"The worker's own share: {claim_ms:+.0f} ms to the first claim (beside the sleeper), {ready_ms:+.0f} ms to "
        f"Ready (beside the probed sleeper). At most {ALLOWED_MS:.0f} ms are allowed."
    )
    return 0 if max(claim_ms, ready_ms) <= ALLOWED_MS else 1


def _told(values_ms: list[float]) -> str:
    return f"{statistics.median(values_ms):.0f} ms ({min(values_ms):.0f}-{max(values_ms):.0f})"


def _median_at_work(starts: list[Start]) -> float:
    return statistics.median(start.at_work_ms for start in starts)


def _median_ready(starts: list[Start]) -> float:
    return statistics.median(start.ready_ms for start in starts)


if __name__ == "__main__":
    sys.exit(main())
