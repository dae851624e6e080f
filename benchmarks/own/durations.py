"""Tasks that take a while: how close a worker comes to running as many as its concurrency allows."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import measures, processes, registry
from benchmarks.install import Installed, install
from benchmarks.measures import Figures
from benchmarks.redis_server import Server

BEGIN, END = 0.25, 0.95
"""Parts of the tasks between which is timed: all threads and processes are up, and no slot is empty yet."""
POLL_S = 0.05
"""Looking takes processor time away from handlers that use all there is."""
BARE_S = 1.2
FULL_CORE = 0.9
"""Handlers that take this much of a core by themselves leave a queue in the same process nothing to work with."""


@dataclass(frozen=True)
class Case:
    """One kind of handler; see `benchmarks.own.sleepers`."""

    kind: str
    ms: float
    concurrency: int

    @property
    def arithmetic(self) -> float:
        """Tasks per second if a task took its time and nothing else."""
        return self.concurrency / self.ms * 1000


CASES = (
    *(Case("loop", ms, concurrency) for concurrency in (5, 100) for ms in (1, 10, 100)),
    *(Case("thread", ms, concurrency) for concurrency in (5, 100) for ms in (1, 10, 100)),
    # More processes than that are not what a machine of two cores runs; the spin is for as many as there are cores.
    *(Case("process", ms, 5) for ms in (1, 10, 100)),
    *(Case("spin", ms, 2) for ms in (10, 100)),
)

_DOES_NOTHING = {"loop": "noop", "thread": "thread", "process": "process", "spin": "process"}
"""What is run with no duration at all, to see how many tasks of that kind there can be at most."""


def durations(server: Server, *, seconds: float, rounds: int, tell: Callable[[str], None]) -> list[Figures]:
    """One row per case, each run for about so long: the medians of the rounds, without a queue and with one in turn."""
    highest = {}
    for kind, concurrency in dict.fromkeys((_DOES_NOTHING[case.kind], case.concurrency) for case in CASES):
        tell(f"durations: {kind} without a duration at concurrency {concurrency}")
        # Few slots are emptied faster than they are filled: fewer tasks do.
        tasks = round(min(10, concurrency) * 1500 * seconds)
        # These are over soon, so they are looked at more often than those that take a while.
        no_ops = [_rate(server, Case(kind, 0, concurrency), tasks=tasks, poll_s=measures.POLL_S) for _ in range(rounds)]
        highest[kind, concurrency] = statistics.median(no_ops)
    rows = []
    for case in CASES:
        tell(f"durations: {case.kind} of {case.ms:g} ms at concurrency {case.concurrency}")
        no_op = highest[_DOES_NOTHING[case.kind], case.concurrency]
        with_no_queue, with_one, cores = [], [], []
        for _ in range(rounds):
            bare = _bare(server, case)
            with_no_queue.append(float(bare["per_s"]))
            cores.append(float(bare["core"]))
            expected = min(case.arithmetic, with_no_queue[-1], no_op)
            # Whole turns of all slots, so that no part of the run is an odd one.
            turns = max(4, math.ceil(expected * seconds / case.concurrency))
            with_one.append(_rate(server, case, tasks=turns * case.concurrency))
        rows.append(
            {
                **dataclasses.asdict(case),
                "arithmetic_per_s": case.arithmetic,
                "bare_per_s": statistics.median(with_no_queue),
                "bare_core": statistics.median(cores),
                "noop_per_s": no_op,
                "per_s": statistics.median(with_one),
            }
        )
    return rows


def _rate(server: Server, case: Case, *, tasks: int, poll_s: float = POLL_S) -> float:
    figures = measures.drain(_installed(case), server, tasks=tasks, workers=1, begin=BEGIN, end=END, poll_s=poll_s)
    return float(figures["per_s"])


def out_of_reach(row: Figures) -> str | None:
    """Why no queue in the same process could come close to its ideal, or None."""
    if row["bare_per_s"] > row["noop_per_s"]:
        return f"more than no-op tasks reach: {row['noop_per_s']:,.0f}"
    if row["bare_core"] >= FULL_CORE:
        return f"without a queue it takes {row['bare_core']:.0%} of the worker's core"
    return None


def _bare(server: Server, case: Case) -> Figures:
    installed = _installed(case)
    bare = dataclasses.replace(installed.peer, producer="{python} -m benchmarks.own.bare")
    arguments = (case.kind, case.ms / 1000, case.concurrency, BARE_S)
    return processes.produce(Installed(bare, installed.root, case.concurrency), server, *arguments, limit_s=30.0)


def _installed(case: Case) -> Installed:
    (peer,) = registry.load(("headrace",))
    peer = dataclasses.replace(
        peer,
        worker=peer.worker.replace("benchmarks.peers.headrace.tasks", "benchmarks.own.sleepers"),
        producer="{python} -m benchmarks.own.sleepers",
        environment={"BENCH_KIND": case.kind, "BENCH_SECONDS": str(case.ms / 1000)},
    )
    return install(peer, concurrency=case.concurrency)
