"""What many objects cost the operator: memory, processor time, and how soon it acts on a change to one of them.

``python -m benchmarks.operator_scale`` measures in a cluster that stands and holds our images (``make cluster
images-load``), with the operator as the chart installs it; it is installed if there is none, and otherwise started
anew, so that the peak of its memory is this run's.

The objects are spread over twenty namespaces, as teams would have them: a namespace is a tenant, and the operator keeps
connections for each of them. ``--namespaces 1`` has all of them in one place, where every TaskQueue has the most others
that it might share its keys with. All lead to one Redis by a service in each namespace, because twenty servers would
take the processor from what is measured. No pool has a pod.

Changes are made one after another, at odd moments, through a connection that stays open, and seen through watches that
stay open; times are told by the clock of this process. Memory and processor time are those of the operators' processes,
as their nodes' kernels tell them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import secrets
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from kubernetes.aio import config
from kubernetes.aio.client.api.custom_objects_api import CustomObjectsApi
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.watch import Watch

from benchmarks.markdown import table
from tests.cluster import lifecycle
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run
from tests.cluster.screen import say, step
from tests.support.kubernetes import Namespace
from tests.support.operator import NAME, NAMESPACE, Operator, deploy_redis, taskqueue, workerpool

QUEUES_PER_POOL: Final = 2

_EXAMPLE: Final = """\
example:
  make cluster images-load NAME=scale
  python -m benchmarks.operator_scale --name scale
  make cluster-down NAME=scale
"""

_GROUP, _VERSION = "headrace.dev", "v1alpha1"
_PLURALS: Final = {"TaskQueue": "taskqueues", "WorkerPool": "workerpools"}
_RUN_LABEL: Final = "headrace.dev/scale-run"
_CREATED_AT_ONCE: Final = 8
_REQUEST_TIMEOUT_S: Final = 30.0
_SETTLE_TIMEOUT_S: Final = 600.0
_CHANGE_TIMEOUT_S: Final = 120.0
_DELETE_TIMEOUT_S: Final = 900.0
_QUIET_S: Final = 20.0
"""Nothing is written for so long: the operator has settled."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

Place = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for on the command line."""

    queues: int
    pools: int
    namespaces: int
    queue_changes: int
    pool_changes: int
    rest_s: float


def main() -> int:
    wanted, name = _options()
    try:
        cluster = lifecycle.standing(name)
        if cluster.provider == "named":
            raise ClusterProblem("Reading a process's memory takes a shell on its node, which a named cluster lacks.")
        operator = _fresh_operator(cluster)
        with _namespaces(cluster, min(wanted.namespaces, wanted.queues)) as places:
            figures = asyncio.run(_measure(cluster, operator, places, wanted))
    except (ClusterProblem, TimeoutError) as problem:
        print(problem, file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    sys.stdout.write(f"\n{_told(figures, wanted)}\n")
    return 0


def _options() -> tuple[Wanted, str]:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operator_scale",
        description="Measure the operator with many TaskQueues and WorkerPools, in a cluster that stands.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--name", default="headrace", help="the cluster (default: %(default)s)")
    for option, default, what in (
        ("--queues", 200, "TaskQueues"),
        ("--pools", 100, "WorkerPools"),
        ("--namespaces", 20, "namespaces that they are spread over"),
        ("--queue-changes", 50, "changes to TaskQueues that are timed"),
        ("--pool-changes", 20, "changes to WorkerPools that are timed"),
        ("--rest", 120, "seconds for which it is watched at rest"),
    ):
        parser.add_argument(option, type=_positive, default=default, metavar="N", help=f"{what} (default: %(default)s)")
    found = parser.parse_args()
    wanted = Wanted(found.queues, found.pools, found.namespaces, found.queue_changes, found.pool_changes, found.rest)
    return wanted, found.name


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


# ── what it runs on ──────────────────────────────────────────────────────────────────────────────────


def _fresh_operator(cluster: Cluster) -> Operator:
    """The operator, just started, at the log level that the chart has: requests in a log would cost time."""
    operator = Operator(Namespace(cluster, NAMESPACE))
    stands = operator.namespace.kubectl("get", "deployment", NAME, "--ignore-not-found", "--output=name").strip()
    with step("Starting the operator anew" if stands else "Installing the chart"):
        if stands:
            operator.namespace.kubectl("rollout", "restart", f"deployment/{NAME}")
        else:
            operator.release.install()
        operator.wait_until_it_leads()
        operator.leader()
    return operator


@contextmanager
def _namespaces(cluster: Cluster, number: int) -> Iterator[list[str]]:
    """So many namespaces in which ``redis:6379`` is the same server; all of it is gone afterwards."""
    run_id = secrets.token_hex(4)
    home = Namespace(cluster, f"scale-{run_id}-redis")
    places = [f"scale-{run_id}-{index:02}" for index in range(number)]
    home.create()
    try:
        with step("Starting Redis"):
            deploy_redis(home)
        with step(f"Creating {number} namespaces"):
            objects = [_namespace(place) for place in places] + [_redis_of(home.name, place) for place in places]
            manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
            _kubectl(cluster, "apply", "--filename=-", stdin=manifest)
        yield places
    finally:
        with step(f"Deleting {number} namespaces"):
            # Redis goes last: the operator lets go of each queue there.
            _kubectl(cluster, "delete", "namespace", "--ignore-not-found", *places)
        home.delete()


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _redis_of(home: str, namespace: str) -> dict[str, Any]:
    """Another name for the Redis in ``home``."""
    metadata = {"name": "redis", "namespace": namespace}
    spec = {"type": "ExternalName", "externalName": f"redis.{home}.svc.cluster.local"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _kubectl(cluster: Cluster, *arguments: str, stdin: str | None = None) -> None:
    run(["kubectl", *arguments], timeout_s=_DELETE_TIMEOUT_S, env=cluster.environment(), stdin=stdin)


def _objects(places: Sequence[str], wanted: Wanted) -> list[dict[str, Any]]:
    """The queues in turn over the namespaces; each pool serves two queues of its own."""
    queues: dict[str, list[str]] = {place: [] for place in places}
    objects = []
    for index, place in zip(range(wanted.queues), itertools.cycle(places), strict=False):
        queues[place].append(f"queue-{index:03}")
        objects.append(_placed(taskqueue(queues[place][-1]), place))
    for index, place in zip(range(wanted.pools), itertools.cycle(places), strict=False):
        turn = index // len(places) * QUEUES_PER_POOL
        served = {queues[place][(turn + each) % len(queues[place])] for each in range(QUEUES_PER_POOL)}
        objects.append(_placed(workerpool(f"pool-{index:03}", sorted(served), replicas=0), place))
    return objects


def _placed(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "namespace": namespace, "labels": {_RUN_LABEL: ""}}}


# ── the operators' processes ─────────────────────────────────────────────────────────────────────────


class Process(NamedTuple):
    """What the kernel says of a container's processes, summed up."""

    rss_mb: float
    peak_mb: float
    cpu_s: float
    """Since it began."""


def _processes(operator: Operator) -> dict[str, Process]:
    """Every replica's, by the name of its pod."""
    return {pod["metadata"]["name"]: _process(operator.namespace.cluster, pod) for pod in operator.pods()}


def _process(cluster: Cluster, pod: Mapping[str, Any]) -> Process:
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    script = (
        f"for pid in $(grep -ls {container} /proc/[0-9]*/cgroup | cut -d/ -f3); do "
        "grep -E '^Vm(RSS|HWM):' /proc/$pid/status; "
        # What follows the command's name, which may hold blanks.
        "sed 's/.*) /stat: /' /proc/$pid/stat; done"
    )
    command = ["docker", "exec", pod["spec"]["nodeName"], "sh", "-c", script]
    total: Counter[str] = Counter()
    for line in run(command, timeout_s=60, env=cluster.environment()).splitlines():
        key, *values = line.split()
        # Without the process's number and name, utime and stime are the 12th and the 13th.
        total[key] += int(values[0]) if key != "stat:" else int(values[11]) + int(values[12])
    if not total["VmRSS:"]:
        raise ClusterProblem(f"No process of {pod['metadata']['name']} was found on its node.")
    return Process(total["VmRSS:"] * 1024 / 1e6, total["VmHWM:"] * 1024 / 1e6, total["stat:"] / _TICKS_PER_S)


def _restarts(operator: Operator) -> int:
    return sum(pod["status"]["containerStatuses"][0]["restartCount"] for pod in operator.pods())


# ── the objects, as the API server tells of them ─────────────────────────────────────────────────────


class Seen(NamedTuple):
    """An object as it was told last."""

    generation: int
    observed_generation: int
    is_ready: bool
    observed_at_s: float
    """When its status was first seen to be about this generation, by the monotonic clock."""


@dataclass
class Api:
    """Our objects: writing them, and what the watches have told of them."""

    objects: CustomObjectsApi
    seen: dict[Place, Seen] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    """How many were told, by kind."""
    last_event_s: float = 0.0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(self, body: dict[str, Any]) -> None:
        await self.objects.create_namespaced_custom_object(
            *(_GROUP, _VERSION, body["metadata"]["namespace"], _PLURALS[body["kind"]], body),
            _request_timeout=_REQUEST_TIMEOUT_S,
        )

    async def change(self, place: Place, spec: dict[str, Any]) -> int:
        """Change fields of its spec; the answer is the generation that this made."""
        kind, namespace, name = place
        answer: Any = await self.objects.patch_namespaced_custom_object(
            *(_GROUP, _VERSION, namespace, _PLURALS[kind], name, {"spec": spec}),
            _content_type="application/merge-patch+json",
            _request_timeout=_REQUEST_TIMEOUT_S,
        )
        generation: int = answer["metadata"]["generation"]
        return generation

    async def watch(self, kind: str) -> None:
        """Take note of everything that happens to our objects of this kind, until cancelled."""
        async with Watch() as watch:  # type: ignore[no-untyped-call]
            stream = watch.stream(
                self.objects.list_cluster_custom_object,
                *(_GROUP, _VERSION, _PLURALS[kind]),
                label_selector=_RUN_LABEL,
                _request_timeout=3600.0,
            )
            async for event in stream:
                self._note(kind, event["type"], event["raw_object"])

    def _note(self, kind: str, event: str, body: Mapping[str, Any]) -> None:
        now_s = time.monotonic()
        metadata, status = body["metadata"], body.get("status") or {}
        place = (kind, metadata["namespace"], metadata["name"])
        self.events[kind] += 1
        self.last_event_s = now_s
        if event == "DELETED":
            self.seen.pop(place, None)
            return
        generation, observed = metadata["generation"], status.get("observedGeneration", 0)
        before = self.seen.get(place)
        is_new = before is None or before.observed_generation != observed
        ready = any(
            each["type"] == "Ready" and each["status"] == "True" and each["observedGeneration"] == generation
            for each in status.get("conditions") or []
        )
        observed_at_s = now_s if before is None or is_new else before.observed_at_s
        self.seen[place] = Seen(generation, observed, ready, observed_at_s)
        self._news.set()

    async def observed(self, place: Place, generation: int) -> float:
        """When the object's status was first seen to be about this generation."""
        async with asyncio.timeout(_CHANGE_TIMEOUT_S):
            while self.seen[place].observed_generation < generation:
                self._news.clear()
                await self._news.wait()
        return self.seen[place].observed_at_s

    async def all_ready(self, kind: str, number: int) -> float:
        """When the last of so many objects was Ready."""
        told = 0
        async with asyncio.timeout(_SETTLE_TIMEOUT_S):
            while (ready := sum(seen.is_ready for place, seen in self.seen.items() if place[0] == kind)) < number:
                if ready >= told + number / 4:
                    told = ready
                    say(f"{ready} of {number} {kind}s are Ready.")
                self._news.clear()
                await self._news.wait()
        return time.monotonic()

    async def settled(self) -> float:
        """When the last thing was written before a quiet time; if it never comes to rest, the latest."""
        deadline_s = time.monotonic() + _SETTLE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self._news.clear()
            try:
                async with asyncio.timeout(_QUIET_S):
                    await self._news.wait()
            except TimeoutError:
                break
        return self.last_event_s


@asynccontextmanager
async def _api(kubeconfig: Path) -> AsyncIterator[Api]:
    """A client whose connections stay open, with a watch on each kind."""
    configuration = Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    client = ApiClient(configuration=configuration)
    api = Api(CustomObjectsApi(client))
    watches = [asyncio.create_task(api.watch(kind)) for kind in _PLURALS]
    try:
        yield api
        for watch in watches:
            if watch.done():
                watch.result()  # one that broke has told nothing since
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await client.close()  # type: ignore[no-untyped-call]


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Figures:
    """What was measured."""

    created_s: float
    ready_s: dict[str, float]
    """By kind, after the last object was created."""
    settled_s: float
    leader: str
    empty: dict[str, Process]
    rested: dict[str, Process]
    end: dict[str, Process]
    cpu_share: dict[str, float]
    """At rest, of one core."""
    writes_per_minute: dict[str, float]
    """At rest, by kind."""
    changes_s: dict[str, list[float]]
    """By kind, from the answer to a change until the status is about it."""
    upsets: str
    load: float


async def _measure(cluster: Cluster, operator: Operator, places: Sequence[str], wanted: Wanted) -> Figures:
    leader, restarts, empty = operator.leader(), _restarts(operator), _processes(operator)
    numbers = {"TaskQueue": wanted.queues, "WorkerPool": wanted.pools}
    async with _api(cluster.kubeconfig) as api:
        began_s = time.monotonic()
        with step(f"Creating {wanted.queues} TaskQueues and {wanted.pools} WorkerPools"):
            await _create(api, _objects(places, wanted))
        created_s = time.monotonic()
        with step("Waiting until all are Ready"):
            ready = await asyncio.gather(*(api.all_ready(kind, number) for kind, number in numbers.items()))
        with step(f"Waiting until nothing was written for {_QUIET_S:g} s"):
            settled_s = await api.settled()

        with step(f"Watching it at rest for {wanted.rest_s:g} s"):
            before, began_rest_s, events = _processes(operator), time.monotonic(), Counter(api.events)
            await asyncio.sleep(wanted.rest_s)
            rested, rest_s, written = _processes(operator), time.monotonic() - began_rest_s, api.events - events

        chance = random.Random(7)
        with step(f"Changing a TaskQueue {wanted.queue_changes} times"):
            queue_changes_s = [
                await _change(api, "TaskQueue", {"lease": {"maxCrashes": 4 + turn % 900}}, chance)
                for turn in range(wanted.queue_changes)
            ]
        with step(f"Changing a WorkerPool {wanted.pool_changes} times"):
            pool_changes_s = [
                await _change(api, "WorkerPool", {"idleSeconds": 200 + turn % 900}, chance)
                for turn in range(wanted.pool_changes)
            ]
    return Figures(
        created_s=created_s - began_s,
        ready_s={kind: at_s - created_s for kind, at_s in zip(numbers, ready, strict=True)},
        settled_s=settled_s - created_s,
        leader=leader,
        empty=empty,
        rested=rested,
        end=_processes(operator),
        cpu_share={name: (rested[name].cpu_s - before[name].cpu_s) / rest_s for name in before},
        writes_per_minute={kind: written[kind] * 60 / rest_s for kind in numbers},
        changes_s={"TaskQueue": queue_changes_s, "WorkerPool": pool_changes_s},
        upsets=_upsets(operator, leader, restarts),
        load=os.getloadavg()[2],
    )


async def _create(api: Api, objects: Sequence[dict[str, Any]]) -> None:
    at_once = asyncio.Semaphore(_CREATED_AT_ONCE)

    async def create(body: dict[str, Any]) -> None:
        async with at_once:
            await api.create(body)

    await asyncio.gather(*(create(body) for body in objects))


async def _change(api: Api, kind: str, spec: dict[str, Any], chance: random.Random) -> float:
    """Change one of them at an odd moment; how long after the answer its status was about that."""
    # The operator looks at a queue once a second: changes must not fall into step with that.
    await asyncio.sleep(chance.uniform(0.2, 1.2))
    place = chance.choice(sorted(place for place in api.seen if place[0] == kind))
    generation = await api.change(place, spec)
    answered_s = time.monotonic()
    # The watch may be quicker than the answer.
    return max(0.0, await api.observed(place, generation) - answered_s)


def _upsets(operator: Operator, leader: str, restarts: int) -> str:
    """What would make the figures doubtful."""
    found = []
    if operator.leader() != leader:
        found.append("the leader changed")
    if more := _restarts(operator) - restarts:
        found.append(f"containers were started again {more} times")
    return " and ".join(found)


# ── telling ──────────────────────────────────────────────────────────────────────────────────────────


def _told(figures: Figures, wanted: Wanted) -> str:
    others = [name for name in figures.rested if name != figures.leader]
    rows = [
        ("created", f"in {figures.created_s:.1f} s", ""),
        *(
            (f"all {kind}s Ready", f"{ready_s:.1f} s after the last was created", "")
            for kind, ready_s in figures.ready_s.items()
        ),
        ("last write before it came to rest", f"{figures.settled_s:.1f} s after the last was created", "settles"),
        ("memory of the leader", _memory(figures, figures.leader), "under 300 MB"),
        *(("memory of the other", _memory(figures, name), "under 300 MB") for name in others),
        ("processor at rest, leader", f"{figures.cpu_share[figures.leader]:.1%} of a core", ""),
        *(("processor at rest, other", f"{figures.cpu_share[name]:.1%} of a core", "") for name in others),
        *(
            (f"status writes at rest, {kind}", f"{rate:.1f} per minute", "close to none")
            for kind, rate in figures.writes_per_minute.items()
        ),
        *(
            (f"{len(taken_s)} changes to a {kind}, until observed", _times(taken_s), "within 1 s")
            for kind, taken_s in figures.changes_s.items()
        ),
    ]
    title = f"{wanted.queues} TaskQueues and {wanted.pools} WorkerPools in {wanted.namespaces} namespace(s)"
    about = f"On {os.cpu_count()} cores, whose load was {figures.load:.1f} over the last 15 minutes."
    if figures.upsets:
        about += f" Meanwhile {figures.upsets}: look into the operator's log."
    return f"{table((title, 'measured', 'wanted'), rows)}\n\n{about}"


def _memory(figures: Figures, name: str) -> str:
    at_rest = figures.rested[name].rss_mb
    if name not in figures.empty or name not in figures.end:
        return f"{at_rest:.0f} MB at rest"  # a pod that came or went meanwhile
    end = figures.end[name]
    return (
        f"{figures.empty[name].rss_mb:.0f} MB empty, {at_rest:.0f} MB at rest, "
        f"{end.rss_mb:.0f} MB after the changes, {end.peak_mb:.0f} MB at most"
    )


def _times(taken_s: Sequence[float]) -> str:
    ordered = sorted(taken_s)
    p99_s = ordered[math.ceil(len(ordered) * 0.99) - 1]
    return f"p50 {statistics.median(ordered):.3f} s, p99 {p99_s:.3f} s, max {ordered[-1]:.3f} s"


if __name__ == "__main__":
    sys.exit(main())
