"""What is measured, how often and in which order; and the median of what came out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import measures
from benchmarks.install import Installed
from benchmarks.measures import Figures
from benchmarks.redis_server import Server

MIN_TASKS = 200
MEASURES = ("drain_1", "drain_2", "bulk", "single", "latency", "idle")


@dataclass(frozen=True)
class Effort:
    """How long to look. ``tasks`` is what the fastest queue gets; the others get their share of it."""

    tasks: int
    rounds: int
    singles: int
    samples: int
    latency_limit_s: float
    idle_s: float


FULL = Effort(tasks=100_000, rounds=3, singles=3000, samples=300, latency_limit_s=30.0, idle_s=10.0)
QUICK = Effort(tasks=20_000, rounds=1, singles=500, samples=100, latency_limit_s=8.0, idle_s=5.0)


def run(measure: str, installed: Installed, server: Server, effort: Effort) -> Figures:
    """One measure of one peer, once."""
    tasks = max(MIN_TASKS, int(effort.tasks * installed.peer.share))
    runs: dict[str, Callable[[], Figures]] = {
        "drain_1": lambda: measures.drain(installed, server, tasks=tasks, workers=1),
        "drain_2": lambda: measures.drain(installed, server, tasks=tasks, workers=2),
        "bulk": lambda: measures.enqueue(installed, server, tasks=tasks, mode="bulk"),
        "single": lambda: measures.enqueue(installed, server, tasks=effort.singles, mode="single"),
        "latency": lambda: measures.latency(installed, server, samples=effort.samples, limit_s=effort.latency_limit_s),
        "idle": lambda: measures.idle(installed, server, seconds=effort.idle_s),
    }
    return runs[measure]()


def steps(peers: list[Installed], chosen: tuple[str, ...], rounds: int) -> Iterator[tuple[str, Installed]]:
    """Peers take turns within each measure, so that a slow minute of the machine does not hit only one."""
    for number in range(rounds):
        for measure in chosen:
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
