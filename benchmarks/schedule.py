"""What is measured, how often and in which order; and the median of what came out."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import measures
from benchmarks.install import Installed
from benchmarks.measures import Figures
from benchmarks.redis_server import Server

MIN_TASKS = 200
RATES = ("drain_1", "drain_2", "bulk", "single")
ONCE = ("idle", "memory")
"""They hardly vary, and persistence does not change them: one round, in the first pass only."""
MEASURES = (*RATES, "latency", *ONCE)
"""Of every queue; those of Headrace alone are in `benchmarks.own`."""


@dataclass(frozen=True)
class Effort:
    """How long to look. ``tasks`` is what the fastest queue gets; the others get their share of it."""

    tasks: int
    rounds: int
    """Of the rates."""
    latency_rounds: int
    singles: int
    samples: int
    latency_limit_s: float
    idle_s: float
    stored: int
    """Tasks of the measure of memory, for every queue."""
    waiting: tuple[int, ...]
    """Waiting tasks of the measure of growth; the most of them also while scripts are timed."""
    script_calls: int
    duration_s: float
    """How long tasks of each duration are run for."""
    duration_rounds: int
    profiled: int

    def again(self) -> Effort:
        """For a second pass over the same measures: fewer rounds, so that the whole run stays below half an hour."""
        return dataclasses.replace(self, rounds=min(self.rounds, 2), latency_rounds=1)

    def rounds_of(self, measure: str) -> int:
        """How often a measure is taken."""
        if measure in ONCE:
            return 1
        return self.latency_rounds if measure == "latency" else self.rounds


FULL = Effort(
    tasks=100_000, rounds=3, latency_rounds=3, singles=3000, samples=150, latency_limit_s=12.0, idle_s=8.0,
    stored=20_000, waiting=(1_000, 10_000, 100_000, 1_000_000), script_calls=200, duration_s=2.5, duration_rounds=3,
    profiled=200_000,
)  # fmt: skip
QUICK = Effort(
    tasks=20_000, rounds=1, latency_rounds=1, singles=500, samples=50, latency_limit_s=5.0, idle_s=5.0,
    stored=5_000, waiting=(1_000, 10_000, 100_000), script_calls=50, duration_s=1.0, duration_rounds=1,
    profiled=50_000,
)  # fmt: skip


def run(measure: str, installed: Installed, server: Server, effort: Effort) -> Figures:
    """One measure of one peer, once."""
    tasks = max(MIN_TASKS, int(effort.tasks * installed.peer.share))
    runs: dict[str, Callable[[], Figures]] = {
        "drain_1": lambda: measures.drain(installed, server, tasks=tasks, workers=1),
        "drain_2": lambda: measures.drain(installed, server, tasks=tasks, workers=2),
        "bulk": lambda: measures.enqueue(installed, server, tasks=tasks, mode="bulk"),
        "single": lambda: measures.enqueue(installed, server, tasks=effort.singles, mode="single"),
        "latency": lambda: measures.latency(installed, server, samples=effort.samples, limit_s=effort.latency_limit_s),
        "memory": lambda: measures.memory(installed, server, tasks=effort.stored),
        "idle": lambda: measures.idle(installed, server, seconds=effort.idle_s),
    }
    return runs[measure]()


def steps(peers: list[Installed], chosen: tuple[str, ...], effort: Effort) -> Iterator[tuple[str, Installed]]:
    """Peers take turns within each measure, so that a slow minute of the machine does not hit only one."""
    for number in range(max((effort.rounds_of(measure) for measure in chosen), default=0)):
        for measure in chosen:
            if number >= effort.rounds_of(measure):
                continue
            # Every other round goes backwards: nobody always runs after the same neighbour.
            for installed in peers if number % 2 == 0 else reversed(peers):
                yield measure, installed


def median(rounds: list[Figures]) -> dict[str, Any]:
    """The median of every number, each for itself, and the rounds it was taken from."""
    numbers = {
        key: statistics.median(values)
        for key in rounds[0]
        if (values := [figures[key] for figures in rounds if isinstance(figures[key], int | float)])
    }
    return {**numbers, "rounds": rounds}
