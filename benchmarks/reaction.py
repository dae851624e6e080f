"""How soon the operator reacts to load, and whether it gets the number of workers right.

``python -m benchmarks.reaction`` measures in a cluster that stands and holds our images (``make cluster images-load``),
with the operator that runs there; it is deployed if there is none. Four parts, each with its bars:

patch  bursts into a pool of some size, each of which needs one pod more: from just before the call of enqueue to the
       patch of the Deployment, which is the moment that the operator's log names; beside it, when a watch has told
start  a task for a pool at zero: from just before enqueue until it starts, beside a bare `kubectl scale` from 0 to 1 of
       the same image to Ready
burst  a burst for exactly ten pods: from 0 to 10 in one patch, and never more than one more until it is drained
idle   workers that have nothing to do: from the end of their last task until their pod is told to go

All times are told by the one clock of this machine. Redis is reached through `kubectl port-forward`, which adds a
millisecond or so to each call.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.startup import sleeper, start
from headrace import TaskRecord
from tests.chaos.report import percentile
from tests.cluster import lifecycle
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.cluster.screen import say, step
from tests.support.following import DELETED_AT, POOL, REPLICAS, LogLine, OperatorLog, Sighting, Watch, following
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    NAME,
    NAMESPACE,
    Operator,
    Producer,
    apply,
    deploy_redis,
    deployments,
    producing,
    taskqueue,
    wait_until_ready,
    workerpool,
)

PATCH_P50_MS: Final = 50.0
PATCH_P99_MS: Final = 250.0
START_OVER_BARE_MS: Final = 500.0
BURST_PODS: Final = 10
IDLE_S: Final = 10.0
IDLE_LATE_S: Final = 5.0
KEPT: Final = 2

_TIMEOUT_S: Final = 180.0
_DRAIN_TIMEOUT_S: Final = 600.0
_LARGEST: Final = 5
"""The largest size that the bursts of the first part go to, one pod at a time."""
_LANES: Final = 4
_EXAMPLE: Final = """\
example:
  make cluster images-load NAME=reaction
  python -m benchmarks.reaction --name reaction --json build/reaction.json
  make cluster-down NAME=reaction
"""


@dataclass(frozen=True)
class Bar:
    """Something that is promised, what was measured, and whether the promise holds."""

    part: str
    what: str
    measured: str
    wanted: str
    is_met: bool | None
    """None: it is told beside the others, and nothing is promised."""


@dataclass
class Report:
    """All that was measured."""

    bars: list[Bar] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def tell(self, part: str, what: str, measured: str, wanted: str = "", is_met: bool | None = None) -> None:
        self.bars.append(Bar(part, what, measured, wanted, is_met))
        say(f"{part}: {what}: {measured}" + ("" if is_met is None else ", as wanted" if is_met else ", NOT as wanted"))


@dataclass(frozen=True)
class Scene:
    """Where it is measured, and what is watched there."""

    namespace: Namespace
    log: OperatorLog
    deployments: Watch
    pods: Watch

    def set_up(self, name: str, **pool: Any) -> None:
        """A queue and a pool of that name; the pool follows the load."""
        made = workerpool(name, [name], graceSeconds=5, **pool)
        del made["spec"]["replicas"]
        apply(self.namespace, taskqueue(name), made)
        wait_until_ready(self.namespace, queues=[name], pools=[name])

    def remove(self, name: str) -> None:
        """Remove a pool that is measured no more, so that it takes no part in what comes next."""
        self.namespace.kubectl("delete", f"workerpool/{name}", f"taskqueue/{name}", "--wait=false")

    def told(self, pool: str) -> int:
        """How many pods its Deployment was last seen to be told to have."""
        return sum(int(seen.fields[0] or 0) for seen in self.deployments.latest().values() if seen.fields[1] == pool)

    def scaled(self, pool: str, since_s: float = 0.0) -> list[LogLine]:
        lines = self.log.lines("scaled", namespace=self.namespace.name, since_s=since_s)
        return [line for line in lines if _pool_of(line) == pool]

    def next_scale_up(self, pool: str, since_s: float) -> LogLine:
        def is_it(line: LogLine) -> bool:
            return (
                line.event == "scaled"
                and line.at_s >= since_s
                and line.said["namespace"] == self.namespace.name
                and _pool_of(line) == pool
                and line.said["replicas"] > line.said["before"]
            )

        return self.log.next(is_it, timeout_s=_TIMEOUT_S, what=f"it has scaled {pool} up")

    def wait_until_empty(self, pool: str) -> None:
        """No pod is left, and none is wanted."""

        def is_empty(pods: dict[str, Sighting]) -> bool:
            return self.told(pool) == 0 and not any(seen.fields[0] == pool for seen in pods.values())

        self.pods.wait(is_empty, timeout_s=_DRAIN_TIMEOUT_S, what=f"the pool {pool} did not come to zero")


def _pool_of(line: LogLine) -> str:
    """A Deployment is called POOL-REVISION."""
    pool, _, _ = str(line.said["deployment"]).rpartition("-")
    return pool


# ── the command ──────────────────────────────────────────────────────────────────────────────────────


def main() -> int:
    options = _options()
    report = Report()
    try:
        cluster = lifecycle.standing(options.name)
        operator = _operator(cluster)
        with _scene(cluster, operator) as scene:
            for part, measure in _parts(options).items():
                with step(f"Measuring: {part}"):
                    measure(scene, report)
            # The operator looks after other namespaces as well, whose trouble is not ours.
            for line in (each for each in scene.log.problems() if scene.namespace.name in str(each.said)):
                report.tell("log", "the operator tells of a problem", json.dumps(line.said)[:200], "none", False)
    except (ClusterProblem, AssertionError, TimeoutError) as problem:
        print(problem, file=sys.stderr)  # noqa: T201 - this is a command
        _tell(report, options.json)
        return 1
    return _tell(report, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reaction",
        description="Measure how soon the operator reacts to load, in a cluster that stands.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--name", default="headrace", help="the cluster (default: %(default)s)")
    parser.add_argument("--bursts", type=int, default=100, metavar="N", help="of the part patch (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=10, metavar="N", help="of each kind (default: %(default)s)")
    parser.add_argument("--idle", type=int, default=20, metavar="N", help="rounds of the part idle (default: 20)")
    parser.add_argument("--parts", default="patch,start,burst,idle", help="which of them (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to this file as well")
    return parser.parse_args()


def _parts(options: argparse.Namespace) -> dict[str, Callable[[Scene, Report], None]]:
    known: dict[str, Callable[[Scene, Report], None]] = {
        "patch": lambda scene, report: measure_patches(scene, report, options.bursts),
        "start": lambda scene, report: measure_starts(scene, report, options.starts),
        "burst": measure_bursts,
        "idle": lambda scene, report: measure_idle(scene, report, options.idle),
    }
    asked = options.parts.split(",")
    if unknown := set(asked) - known.keys():
        raise SystemExit(f"--parts: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return {part: known[part] for part in asked}


def _operator(cluster: Cluster) -> Operator:
    """The operator that is there; otherwise it is deployed."""
    operator = Operator(Namespace(cluster, NAMESPACE))
    stands = operator.namespace.kubectl("get", "deployment", NAME, "--ignore-not-found", "--output=name").strip()
    if not stands:
        with step("Installing the chart"):
            operator.release.install()
    operator.wait_until_it_leads()
    return operator


@contextmanager
def _scene(cluster: Cluster, operator: Operator) -> Iterator[Scene]:
    namespace = Namespace(cluster, f"reaction-{secrets.token_hex(4)}")
    namespace.create()
    try:
        with step("Starting Redis"):
            deploy_redis(namespace)
        log = OperatorLog(operator.namespace)
        seen_deployments = Watch(namespace, "deployments", REPLICAS, POOL, selector="headrace.dev/pool")
        seen_pods = Watch(namespace, "pods", POOL, DELETED_AT, selector="headrace.dev/pool")
        with following(log, seen_deployments, seen_pods):
            yield Scene(namespace, log, seen_deployments, seen_pods)
    finally:
        namespace.delete()


# ── patch ────────────────────────────────────────────────────────────────────────────────────────────


def measure_patches(scene: Scene, report: Report, bursts: int) -> None:
    """From enqueue to the patch that it needs."""
    # With a target this short a task of seconds counts as a whole slot, measured or not: each one needs a pod.
    scene.set_up(
        "patch",
        concurrency=1,
        maxReplicas=2 * _LARGEST,
        idleSeconds=1,
        targetDrainSeconds=0.01,
        backlogPerWorker=1,
    )
    chance = random.Random(11)
    by_log_ms: list[float] = []
    by_watch_ms: list[float] = []
    from_zero_ms: list[float] = []
    with producing(scene.namespace, "patch") as producer:
        while len(by_log_ms) < bursts:
            scene.wait_until_empty("patch")
            for size in range(1, chance.randint(2, _LARGEST) + 1):
                # The operator looks once a second: bursts must not fall into step with that.
                time.sleep(chance.uniform(0.3, 1.5))
                logged_ms, watched_ms = _burst_for_one_more(scene, producer)
                by_log_ms.append(logged_ms)
                by_watch_ms.append(watched_ms)
                if size == 1:
                    from_zero_ms.append(logged_ms)
            say(f"{len(by_log_ms)} of {bursts} bursts, the last to {scene.told('patch')} pods")
        scene.wait_until_empty("patch")
    scene.remove("patch")
    report.samples |= {"patch_ms": by_log_ms, "patch_by_watch_ms": by_watch_ms}
    p50, p99 = percentile(by_log_ms, 50) or 0.0, percentile(by_log_ms, 99) or 0.0
    title = f"enqueue to patch, {len(by_log_ms)} bursts for one pod more"
    report.tell("patch", f"{title}, p50", f"{p50:.0f} ms", f"at most {PATCH_P50_MS:g} ms", p50 <= PATCH_P50_MS)
    report.tell("patch", f"{title}, p99", f"{p99:.0f} ms", f"at most {PATCH_P99_MS:g} ms", p99 <= PATCH_P99_MS)
    report.tell("patch", "the longest", f"{max(by_log_ms):.0f} ms")
    report.tell("patch", f"those {len(from_zero_ms)} from zero", _range(from_zero_ms, "ms"))
    report.tell("patch", "the same, until a watch told of it", _range(by_watch_ms, "ms"))


def _burst_for_one_more(scene: Scene, producer: Producer) -> tuple[float, float]:
    """Enqueue as much as needs one pod more than there is; until the log says so, and until the watch does."""
    before = producer.stats()
    size = scene.told("patch") + 1
    tasks = max(1, size - before.waiting - before.executing)
    began_s = time.time()
    producer.enqueue("rest", *([6.0] for _ in range(tasks)))
    line = scene.next_scale_up("patch", began_s)
    replicas = line.said["replicas"]
    scene.deployments.wait(lambda _: scene.told("patch") >= replicas, timeout_s=_TIMEOUT_S, what="no patch was seen")
    seen = next(
        seen
        for seen in scene.deployments.sightings(began_s)
        if seen.fields[1] == "patch" and int(seen.fields[0] or 0) >= replicas
    )
    return (line.at_s - began_s) * 1000, (seen.at_s - began_s) * 1000


# ── start ────────────────────────────────────────────────────────────────────────────────────────────


def measure_starts(scene: Scene, report: Report, starts: int) -> None:
    """From enqueue into a pool at zero to the start of the task, beside a bare start of the same image."""
    scene.set_up("start", concurrency=1, maxReplicas=3, idleSeconds=0)
    namespace = scene.namespace
    (made,) = deployments(namespace, "start").values()
    names = {"sleeper": None, "probed-sleeper": {"exec": {"command": ["true"]}, "periodSeconds": 1}}
    for name, probe in names.items():
        namespace.apply(sleeper(json.loads(json.dumps(made)), name, probe))
    tasks_ms: list[float] = []
    bare_ms: dict[str, list[float]] = {name: [] for name in names}
    with producing(namespace, "start") as producer:
        for turn in range(starts + 1):
            scene.wait_until_empty("start")
            producer.stats()  # a connection that is open already
            began_s = time.time()
            (task_id,) = producer.enqueue("nothing", [turn])
            (record,) = producer.completed([task_id])
            assert record.started_at_s is not None
            tasks_ms.append((record.started_at_s - began_s) * 1000)
            scene.wait_until_empty("start")
            for name, measured in bare_ms.items():
                measured.append(start(namespace, name, None).ready_ms)
            say(f"start {turn} of {starts}: {tasks_ms[-1]:.0f} ms, bare {bare_ms['sleeper'][-1]:.0f} ms")
    scene.remove("start")
    # The first ones bring the image's files into memory.
    tasks_ms, bare_ms = tasks_ms[1:], {name: measured[1:] for name, measured in bare_ms.items()}
    report.samples |= {"start_ms": tasks_ms, **{f"bare_{name}_ms": measured for name, measured in bare_ms.items()}}
    over_ms = statistics.median(tasks_ms) - statistics.median(bare_ms["sleeper"])
    report.tell("start", f"enqueue at zero until the task starts, {len(tasks_ms)} times", _range(tasks_ms, "ms"))
    report.tell("start", "bare scale to Ready, a container that sleeps", _range(bare_ms["sleeper"], "ms"))
    report.tell("start", "the same with a readiness probe", _range(bare_ms["probed-sleeper"], "ms"))
    report.tell(
        "start",
        "over the bare one, medians",
        f"{over_ms:+.0f} ms",
        f"at most {START_OVER_BARE_MS:g} ms",
        over_ms <= START_OVER_BARE_MS,
    )


# ── burst ────────────────────────────────────────────────────────────────────────────────────────────


def measure_bursts(scene: Scene, report: Report) -> None:
    """From 0 to 10 in one patch: once when nothing is known of how long tasks take, once when it was measured."""
    # Unknown: 4 tasks for each worker. What is then measured asks for less: 3 s / (3 s + 4 s) of a slot, not a half.
    common = {"concurrency": 2, "maxReplicas": 3 * BURST_PODS, "idleSeconds": 5}
    scene.set_up("unknown", backlogPerWorker=4, targetDrainSeconds=4, **common)
    with producing(scene.namespace, "unknown") as producer:
        _one_burst(scene, report, producer, 4 * BURST_PODS, "by backlogPerWorker, nothing measured")
    scene.remove("unknown")

    # Measured: 3 s / (3 s + 3 s) is half a slot. 39 tasks need 19.5 slots; the measure may be a little off.
    scene.set_up("measured", backlogPerWorker=20, targetDrainSeconds=3, **common)
    with producing(scene.namespace, "measured") as producer:
        producer.completed(producer.enqueue("rest", *([3.0] for _ in range(8))))
        scene.wait_until_empty("measured")
        _one_burst(scene, report, producer, 39, "by the measured time of tasks")
    scene.remove("measured")


def _one_burst(scene: Scene, report: Report, producer: Producer, tasks: int, how: str) -> None:
    pool = producer.queue
    began_s = time.time()
    ids = producer.enqueue("rest", *([3.0] for _ in range(tasks)))
    producer.completed(ids, _DRAIN_TIMEOUT_S)
    drained_s = time.time()
    sizes = [int(line.said["replicas"]) for line in scene.scaled(pool, began_s)]
    seen = [
        int(seen.fields[0] or 0)
        for seen in scene.deployments.sightings(began_s)
        if seen.fields[1] == pool and seen.at_s <= drained_s
    ]
    first, most = sizes[0] if sizes else 0, max([*seen, *sizes], default=0)
    told = " → ".join(str(size) for size in [0, *sizes])
    title = f"a burst for {BURST_PODS} pods {how}"
    report.tell("burst", f"{title}: in one patch", told, f"0 → {BURST_PODS}", first == BURST_PODS)
    report.tell(
        "burst", f"{title}: the most at any time", str(most), f"at most {BURST_PODS + 1}", most <= BURST_PODS + 1
    )
    scene.wait_until_empty(pool)


# ── idle ─────────────────────────────────────────────────────────────────────────────────────────────


def measure_idle(scene: Scene, report: Report, rounds: int) -> None:
    """From the end of a worker's last task until its pod is told to go, in some pools side by side."""
    lanes = [f"idle-{lane}" for lane in range(_LANES)]
    settings = {"concurrency": 1, "maxReplicas": 6, "idleSeconds": IDLE_S, "targetDrainSeconds": 0.01}
    for lane in lanes:
        scene.set_up(lane, backlogPerWorker=1, **settings)
    scene.set_up("keeps", backlogPerWorker=1, minReplicas=KEPT, **settings)
    with ThreadPoolExecutor(len(lanes) + 1) as threads:
        each = -(-rounds // len(lanes))
        keeping = threads.submit(_keep_some, scene, 2)
        found = list(threads.map(lambda lane: _idle_rounds(scene, lane, each), lanes))
        least, left = keeping.result()
    for pool in (*lanes, "keeps"):
        scene.remove(pool)
    gone_s = [after_s for lane in found for after_s in lane]
    report.samples["idle_s"] = gone_s
    late_s = max(gone_s) - IDLE_S
    report.tell(
        "idle",
        f"{len(gone_s)} workers left with idleSeconds {IDLE_S:g}, to zero, after",
        _range(gone_s, "s"),
        f"at most {IDLE_S + IDLE_LATE_S:g} s",
        late_s <= IDLE_LATE_S,
    )
    report.tell("idle", "none left before", f"{min(gone_s):.1f} s", f"at least {IDLE_S:g} s", min(gone_s) >= IDLE_S)
    report.tell(
        "idle",
        f"a pool with minReplicas {KEPT}: pods at the end, and the fewest it was told to have",
        f"{left}, {least}",
        f"{KEPT}, {KEPT}",
        (left, least) == (KEPT, KEPT),
    )


def _idle_rounds(scene: Scene, pool: str, rounds: int) -> list[float]:
    found: list[float] = []
    with producing(scene.namespace, pool) as producer:
        for turn in range(rounds):
            began_s = time.time()
            # Long enough that each task gets a worker of its own.
            ids = producer.enqueue("rest", *([4.0] for _ in range(1 + turn % 2)))
            records = producer.completed(ids)
            scene.wait_until_empty(pool)
            found += _left_after_s(scene, records, began_s)
            say(f"{pool}: round {turn + 1} of {rounds}")
    return found


def _left_after_s(scene: Scene, records: Sequence[TaskRecord], since_s: float) -> list[float]:
    """For each worker that had a task: from its last task's end to the moment at which its pod was told to go."""
    told_to_go: dict[str, float] = {}
    for seen in scene.pods.sightings(since_s):
        if seen.fields[1] or seen.is_gone:
            told_to_go.setdefault(seen.name, seen.at_s)
    ended: dict[str, float] = {}
    for record in records:
        assert record.finished_at_s is not None
        pod = next(name for name in told_to_go if (record.worker or "").startswith(name[:40].strip("-")))
        ended[pod] = max(ended.get(pod, 0.0), record.finished_at_s)
    return [told_to_go[pod] - ended_s for pod, ended_s in ended.items()]


def _keep_some(scene: Scene, rounds: int) -> tuple[int, int]:
    """Load a pool that has a minimum; the fewest pods that it was told to have, and how many there are at the end."""
    began_s = time.time()
    with producing(scene.namespace, "keeps") as producer:
        for _ in range(rounds):
            producer.completed(producer.enqueue("rest", *([4.0] for _ in range(KEPT + 2))))
            scene.pods.wait(
                lambda _: scene.told("keeps") == KEPT, timeout_s=_DRAIN_TIMEOUT_S, what="the pool did not shrink"
            )
            time.sleep(IDLE_S + IDLE_LATE_S)  # what is idle for even longer stays as well
    told = [int(seen.fields[0] or 0) for seen in scene.deployments.sightings(began_s) if seen.fields[1] == "keeps"]
    pods = [seen for seen in scene.pods.latest().values() if seen.fields[0] == "keeps" and not seen.fields[1]]
    return min(told, default=KEPT), len(pods)


# ── telling ──────────────────────────────────────────────────────────────────────────────────────────


def _range(values: Sequence[float], unit: str) -> str:
    places = 0 if unit == "ms" else 1
    return (
        f"median {statistics.median(values):.{places}f} {unit} ({min(values):.{places}f} to {max(values):.{places}f})"
    )


def _tell(report: Report, file: Path | None) -> int:
    table = Table("part", "what", "measured", "wanted", "met")
    for bar in report.bars:
        table.add_row(bar.part, bar.what, bar.measured, bar.wanted, {None: "", True: "yes", False: "NO"}[bar.is_met])
    console = Console(width=140)
    console.print(table)
    load = os.getloadavg()
    console.print(f"On {os.cpu_count()} cores, whose load was {load[1]:.1f} over 5 and {load[2]:.1f} over 15 minutes.")
    if file is not None:
        figures = {"bars": [asdict(bar) for bar in report.bars], "samples": report.samples, "load": load}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    is_met = bool(report.bars) and all(bar.is_met is not False for bar in report.bars)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
