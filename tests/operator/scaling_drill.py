"""Pools that follow a random load, are changed all the while and lose pods; what happens to every task is recorded.

`Drill` puts the parts together: a load that comes in bursts, rollouts, and blows against pods. What the operator did is
taken from its log and from watches, what happened to tasks from their queues' streams of events and their records;
`scaling_verdict` says what it means.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import redis
from rich.console import Console
from rich.table import Table

from headrace.model.errors import BackendError, TaskNotFound
from tests.chaos.report import Row, percentile
from tests.cluster.problem import ClusterProblem
from tests.cluster.screen import say
from tests.operator.scaling_verdict import Blow, Departure, Evidence, Finding, Moment, Story, Verdict, judge, told
from tests.support.following import DELETED_AT, PHASE, POOL, REPLICAS, LogLine, OperatorLog, Watch, following
from tests.support.kubernetes import CONDITION_TIMEOUT_S, Namespace
from tests.support.operator import (
    Producer,
    apply,
    change,
    kill_9,
    producing,
    taskqueue,
    wait_for,
    wait_until_ready,
    workerpool,
)

T = TypeVar("T")

SHORTEST_TASK_S = 0.1
GRACE_S = 2
"""Much shorter than most tasks: a busy worker that was told to go would have to hand back what it has."""
LEASE = {"seconds": 10, "heartbeatSeconds": 2, "workerDeadAfterSeconds": 15, "maxCrashes": 1000}
RETENTION = {"resultSeconds": 86_400, "maxEvents": 10_000_000}
"""Nothing goes before the judgement."""
MOST_RETRIES = 100
"""One task may be met by several kills."""
MOST_OUTSTANDING = 25
"""No further burst comes into a queue that has so much to do: there are to be quiet times."""

_TRIES = 5
_STEP_S = 0.5
_TELL_EVERY_S = 10.0
_STUCK_AFTER_S = 600.0
"""Nothing has been scaled down and no revision has gone for so long, while bursts come and go."""
_MOST_TOLD = 10
_AROUND_S = 6.0
_DECISIONS = (
    "scaled",
    "decision",
    "workers are asked to drain",
    "workers are taken back",
    "the chosen pods are gone",
    "other pods went than were chosen",
    "a former revision is gone",
)


@dataclass(frozen=True)
class Extent:
    """How much of everything."""

    pools: int
    scale_downs: int
    rollouts: int
    kills: int
    deletions: int
    longest_task_s: float
    longest_gap_s: float
    within_s: float
    """When it has not come so far by then, something is stuck."""


@dataclass(frozen=True)
class Pool:
    """A pool of the drill and the queues that it serves."""

    name: str
    queues: tuple[str, ...]
    spec: Mapping[str, Any]


def pools_of(number: int) -> list[Pool]:
    """Pools of all sorts: with a queue of their own, with two of them, and two that share one."""
    all_sorts = [
        Pool("p0", ("q0",), {"concurrency": 1, "maxReplicas": 5, "idleSeconds": 1}),
        Pool("p1", ("q1", "q2"), {"concurrency": 2, "maxReplicas": 4, "idleSeconds": 2}),
        Pool("p2", ("q3",), {"concurrency": 2, "maxReplicas": 4, "idleSeconds": 1}),
        Pool("p3", ("q3",), {"concurrency": 1, "maxReplicas": 4, "idleSeconds": 3, "weight": 2}),
        Pool("p4", ("q4",), {"concurrency": 3, "maxReplicas": 4, "idleSeconds": 2, "minReplicas": 1}),
        Pool("p5", ("q5",), {"concurrency": 1, "maxReplicas": 6, "idleSeconds": 1}),
    ]
    return all_sorts[:number]


class Reach:
    """Redis through a port-forward, which is opened anew when it breaks: over an hour, some do."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._open = contextlib.ExitStack()
        self._producer: Producer | None = None

    def close(self) -> None:
        with contextlib.suppress(BackendError, redis.RedisError):
            self._open.close()
        self._producer = None

    def ask(self, queue: str, question: Callable[[Producer], T], *, tries: int = _TRIES) -> T:
        while True:
            tries -= 1
            try:
                if self._producer is None:
                    self._producer = self._open.enter_context(producing(self._namespace, queue))
                return question(self._producer.for_queue(queue))
            except (BackendError, redis.RedisError, AssertionError):
                self.close()
                if tries <= 0:
                    raise
                time.sleep(_STEP_S)


# ── the load ─────────────────────────────────────────────────────────────────────────────────────────


class Load(threading.Thread):
    """Bursts of tasks into each queue, with quiet times between, until stopped."""

    def __init__(self, namespace: Namespace, queues: Sequence[str], extent: Extent, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._reach = Reach(namespace)
        self._queues = queues
        self._extent = extent
        self._chance = chance
        self._stopped = threading.Event()
        self.problem: BaseException | None = None
        self.tasks: dict[str, tuple[str, float]] = {}
        """By id: the queue, and how long the task takes."""
        self.unanswered = 0
        """Bursts of which nobody knows whether they were stored. Those that were are judged as well."""

    def stop(self) -> None:
        self._stopped.set()
        self.join(CONDITION_TIMEOUT_S)

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # the drill's own thread raises it again
            self.problem = error
        finally:
            self._reach.close()

    def _run(self) -> None:
        due = [(time.monotonic() + self._chance.uniform(0, 2), queue) for queue in self._queues]
        heapq.heapify(due)
        while not self._stopped.wait(max(0.0, due[0][0] - time.monotonic())):
            _, queue = heapq.heappop(due)
            stats = self._reach.ask(queue, lambda producer: producer.stats())
            if stats.waiting + stats.executing + stats.delayed < MOST_OUTSTANDING:
                self._burst(queue)
            heapq.heappush(due, (time.monotonic() + self._log_uniform(1.0, self._extent.longest_gap_s), queue))

    def _burst(self, queue: str) -> None:
        size = self._chance.choice((1, 1, 2, 3, 5, 8, 12))
        seconds = [round(self._log_uniform(SHORTEST_TASK_S, self._extent.longest_task_s), 3) for _ in range(size)]

        def enqueue(producer: Producer) -> list[str]:
            return producer.enqueue("rest", *([each] for each in seconds), max_retries=MOST_RETRIES)

        try:
            ids = self._reach.ask(queue, enqueue, tries=1)
        except (BackendError, redis.RedisError):
            self.unanswered += 1
            return
        self.tasks |= {task_id: (queue, each) for task_id, each in zip(ids, seconds, strict=True)}

    def _log_uniform(self, least: float, most: float) -> float:
        return math.exp(self._chance.uniform(math.log(least), math.log(most)))


# ── the drill ────────────────────────────────────────────────────────────────────────────────────────


class Drill:
    """From the first burst to the verdict."""

    def __init__(self, namespace: Namespace, operator: Namespace, extent: Extent, seed: int) -> None:
        self.namespace = namespace
        self.extent = extent
        self.pools = pools_of(extent.pools)
        self.queues = sorted({queue for pool in self.pools for queue in pool.queues})
        self._chance = random.Random(seed)
        self._began_s = time.time()
        self._log = OperatorLog(operator)
        self._deployments = Watch(namespace, "deployments", REPLICAS, POOL, selector="headrace.dev/pool")
        self._pods = Watch(namespace, "pods", POOL, DELETED_AT, PHASE, selector="headrace.dev/pool")
        self._load = Load(namespace, self.queues, extent, random.Random(seed + 1))
        self._reach = Reach(namespace)
        self._blows: list[Blow] = []
        self._changes = 0
        self._told_at_s = 0.0
        self.kills = 0
        self.deletions = 0

    def _set_up(self) -> None:
        """Queues and pools; Redis is there."""
        made = []
        for pool in self.pools:
            usual = {"graceSeconds": GRACE_S, "targetDrainSeconds": 2, "backlogPerWorker": 2}
            body = workerpool(pool.name, pool.queues, **usual | dict(pool.spec))
            del body["spec"]["replicas"]
            made.append(body)
        apply(self.namespace, *(taskqueue(name, lease=LEASE, retention=RETENTION) for name in self.queues), *made)
        wait_until_ready(self.namespace, queues=self.queues, pools=[pool.name for pool in self.pools])

    def run(self) -> tuple[Verdict, Row]:
        """Until all of it has been done; then until the last task has ended and the last worker has gone."""
        with following(self._log, self._deployments, self._pods):
            self._set_up()
            self._load.start()
            try:
                self._disturb()
                self._load.stop()
                self._settle()
                evidence = self._evidence()
            finally:
                self._load.stop()
                self._reach.close()
        verdict = judge(evidence)
        row = self._row(verdict)
        self._tell(verdict)
        self._demand(verdict, evidence)
        return verdict, row

    # ── what is done to the pools ────────────────────────────────────────────────────────────────────

    def _disturb(self) -> None:
        extent = self.extent
        deadline_s = time.monotonic() + extent.within_s
        moved_at_s, seen = time.monotonic(), (0, 0)
        while not self._is_enough():
            if self._load.problem is not None:
                raise self._load.problem
            assert time.monotonic() < deadline_s, f"after {extent.within_s:g} s: {self._progress()}"
            if (now := (self.scale_downs(), self.rollouts())) != seen:
                moved_at_s, seen = time.monotonic(), now
            stuck = f"nothing has moved for {_STUCK_AFTER_S:g} s; does the operator run? {self._progress()}"
            assert time.monotonic() < moved_at_s + _STUCK_AFTER_S, stuck
            # All of it is spread over the whole time, beginning soon: one of each is due at the start.
            share = min(1.0, self.scale_downs() / extent.scale_downs)
            if self._changes < 1 + share * (extent.rollouts - 1):
                self._roll_out()
            elif self._changes >= extent.rollouts and self.rollouts() + self._under_way() < extent.rollouts:
                self._roll_out()  # one was overtaken by the next of the same pool before it had a Deployment
            if self.scale_downs() and self.kills < 1 + share * (extent.kills - 1):
                self._strike("killed")
            elif self.scale_downs() and self.deletions < 1 + share * (extent.deletions - 1):
                self._strike("deleted")
            self._say_now_and_then()
            time.sleep(_STEP_S)

    def _is_enough(self) -> bool:
        extent = self.extent
        return (
            self.scale_downs() >= extent.scale_downs
            and self.rollouts() >= extent.rollouts
            and self.kills >= extent.kills
            and self.deletions >= extent.deletions
        )

    def _roll_out(self) -> None:
        """A change of a pool's template, of one that has workers if there is any."""
        at_work = [pool for pool in self.pools if self._told(pool.name)]
        pool = self._chance.choice(at_work or self.pools)
        self._changes += 1
        variable = {"name": "ROLLOUT", "value": str(self._changes)}
        change(self.namespace, f"workerpool/{pool.name}", template={"env": [variable]})

    def _strike(self, how: Literal["killed", "deleted"]) -> None:
        """Kill or delete a pod at random, whatever it is at."""
        running = [
            seen.name for seen in self._pods.latest().values() if not seen.fields[1] and seen.fields[2] == "Running"
        ]
        if not running:
            return
        pod = self._chance.choice(sorted(running))
        from_s = time.time()
        has_struck = False
        try:
            if how == "killed":
                has_struck = kill_9(self.namespace, pod)
            else:
                self.namespace.kubectl("delete", "pod", pod, "--wait=false")
                has_struck = True
        except ClusterProblem:
            pass  # it has gone meanwhile
        # What has been tried may have had an effect, whatever was answered.
        self._blows.append(Blow(pod, how, from_s, time.time()))
        if has_struck and how == "killed":
            self.kills += 1
        elif has_struck:
            self.deletions += 1

    # ── what has been seen ───────────────────────────────────────────────────────────────────────────

    def scale_downs(self) -> int:
        """How often the operator has made a Deployment smaller."""
        lines = self._log.lines("scaled", namespace=self.namespace.name)
        return sum(line.said["replicas"] < line.said["before"] for line in lines)

    def rollouts(self) -> int:
        """How many former revisions have gone."""
        return len({seen.name for seen in self._deployments.sightings()} - self._deployments.latest().keys())

    def _under_way(self) -> int:
        """How many former revisions are still there."""
        return max(0, len(self._deployments.latest()) - len(self.pools))

    def _told(self, pool: str) -> int:
        return sum(int(seen.fields[0] or 0) for seen in self._deployments.latest().values() if seen.fields[1] == pool)

    def _progress(self) -> str:
        extent = self.extent
        pods = sum(not seen.fields[1] for seen in self._pods.latest().values())
        return (
            f"{self.scale_downs()} of {extent.scale_downs} scale-downs, "
            f"{self.rollouts()} of {extent.rollouts} rollouts, "
            f"{self.kills} of {extent.kills} kills, {self.deletions} of {extent.deletions} deletions, "
            f"{len(self._load.tasks):,} tasks, {pods} pods"
        )

    def _say_now_and_then(self) -> None:
        if time.monotonic() - self._told_at_s > _TELL_EVERY_S:
            self._told_at_s = time.monotonic()
            say(self._progress())

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """No task is left, and every pool has come down to its minimum and to one revision."""
        within_s = CONDITION_TIMEOUT_S + 10 * self.extent.longest_task_s

        def is_done(queue: str) -> bool:
            stats = self._reach.ask(queue, lambda producer: producer.stats())
            return not stats.waiting + stats.executing + stats.delayed

        say(f"No more is enqueued: {self._progress()}")
        wait_for(lambda: all(is_done(queue) for queue in self.queues), "the tasks did not come to their end", within_s)
        say(f"All tasks have ended: {self._progress()}")
        for pool in self.pools:
            least = pool.spec.get("minReplicas", 0)
            message = f"the pool {pool.name} did not come down to {least}, of one revision"
            wait_for(functools.partial(self._has_come_down, pool.name, least), message, within_s)

    def _has_come_down(self, pool: str, least: int) -> bool:
        revisions = [seen for seen in self._deployments.latest().values() if seen.fields[1] == pool]
        return len(revisions) == 1 and self._told(pool) == least

    def _evidence(self) -> Evidence:
        moments: dict[str, list[Moment]] = {task_id: [] for task_id in self._load.tasks}
        queue_of = {task_id: queue for task_id, (queue, _) in self._load.tasks.items()}
        for queue in self.queues:
            for at_s, (task_id, what, _, attempt, worker, detail) in self._reach.ask(queue, _events):
                moments.setdefault(task_id, []).append(Moment(at_s, what, worker, attempt, detail))
                queue_of[task_id] = queue
        stories = []
        for task_id, seen in moments.items():
            state, retries = self._reach.ask(queue_of[task_id], functools.partial(_end, task_id))
            seconds = self._load.tasks[task_id][1] if task_id in self._load.tasks else None
            stories.append(Story(task_id, seconds, state, retries, tuple(seen)))
        departures = [
            Departure(seen.name, seen.at_s) for seen in self._pods.sightings() if seen.is_gone or seen.fields[1]
        ]
        return Evidence(stories, self._blows, departures)

    def _demand(self, verdict: Verdict, evidence: Evidence) -> None:
        stories = {story.task_id: story for story in evidence.stories}
        lines: list[str] = []
        for finding in verdict.findings[:_MOST_TOLD]:
            lines += [f"{finding.charge}: {finding.sentence}", *told(stories[finding.task_id], self._began_s)]
            lines += _others_of_its_worker(finding, stories, self._began_s)
            lines += self._decisions_around(finding)
        if more := len(verdict.findings) - _MOST_TOLD:
            lines += [f"… and {more} more"] if more > 0 else []
        assert not verdict.findings, "\n".join([f"{len(verdict.findings)} things must not be:", *lines])
        problems = [line for line in self._log.problems() if self.namespace.name in str(line.said)]
        assert not problems, "\n".join(["the operator tells of problems:", *(str(line.said) for line in problems)])

    def _decisions_around(self, finding: Finding) -> Iterator[str]:
        """What the operator did about this pod's Deployment at that time."""
        if finding.at_s is None:
            return
        deployment = finding.pod.rsplit("-", 2)[0]
        pool = deployment.rpartition("-")[0]
        for line in self._log.lines(namespace=self.namespace.name):
            is_near = abs(line.at_s - finding.at_s) <= _AROUND_S
            if is_near and line.event in _DECISIONS and _is_about(line, deployment, pool):
                what = {key: value for key, value in line.said.items() if key in _TOLD_OF_A_LINE}
                yield f"  {line.at_s - self._began_s:8.2f} s  operator: {line.event} {what}"

    def _row(self, verdict: Verdict) -> Row:
        fault = (
            f"pools follow a random load: {self.rollouts()} rollouts, {self.kills} pods killed and {self.deletions} "
            f"deleted meanwhile; busy workers interrupted by Headrace: {verdict.interrupted}, "
            f"attempts spent by scaling: {verdict.count('attempt spent')}"
        )
        return Row(
            drill="scaling",
            fault=fault,
            times=self.scale_downs(),
            tasks=verdict.tasks,
            lost=verdict.count("lost"),
            settled_twice=verdict.count("settled twice"),
            executed_again=verdict.retried,
            recovery_p50_s=percentile(verdict.recoveries_s, 50),
            recovery_p99_s=percentile(verdict.recoveries_s, 99),
            recovery="from a kill to the task's next claim",
            took_s=time.time() - self._began_s,
        )

    def _tell(self, verdict: Verdict) -> None:
        table = Table("scaling drill", "")
        for what, number in (
            ("scale-downs", self.scale_downs()),
            ("rollouts", self.rollouts()),
            ("pods killed with SIGKILL", self.kills),
            ("pods deleted", self.deletions),
            ("tasks", verdict.tasks),
            ("tasks completed once", verdict.completed),
            ("tasks lost", verdict.count("lost")),
            ("tasks settled twice", verdict.count("settled twice")),
            ("busy workers interrupted by Headrace", verdict.interrupted),
            ("attempts spent by scaling", verdict.count("attempt spent")),
            ("tasks retried because the drill killed their worker", verdict.retried),
            ("tasks handed back because the drill deleted their pod", verdict.given_back_by_deleted),
            ("claims that went back at once, as their worker was drained", verdict.returned_at_once),
            ("bursts whose answer was lost on the way", self._load.unanswered),
        ):
            table.add_row(what, f"{number:,}")
        Console(width=100).print(table)


_TOLD_OF_A_LINE = ("deployment", "before", "replicas", "need", "message", "pods", "force", "stayed")


def _is_about(line: LogLine, deployment: str, pool: str) -> bool:
    said = line.said
    pods = said["pods"] if isinstance(said.get("pods"), list) else []
    return deployment == said.get("deployment") or pool == said.get("name") or any(deployment in pod for pod in pods)


def _others_of_its_worker(finding: Finding, stories: Mapping[str, Story], since_s: float) -> Iterator[str]:
    """What the same pod's workers did with other tasks at that time: one that still did something was alive."""
    if finding.at_s is None or not finding.pod:
        return
    moments = [
        (moment, story.task_id)
        for story in stories.values()
        for moment in story.moments
        if moment.worker.startswith(finding.pod) and abs(moment.at_s - finding.at_s) <= 2 * LEASE["seconds"]
    ]
    for moment, task_id in sorted(moments, key=lambda each: each[0].at_s):
        if task_id != finding.task_id:
            yield f"  {moment.at_s - since_s:8.2f} s  {moment.worker}: {moment.what} {task_id}"


def _events(producer: Producer) -> list[tuple[float, tuple[str, str, str, int, str, str]]]:
    return list(producer.events())


def _end(task_id: str, producer: Producer) -> tuple[str | None, int]:
    """The task's state, None without a record, and its retries."""
    try:
        record = producer.record(task_id)
    except TaskNotFound:
        return None, 0
    return record.state.value, record.retry_count
