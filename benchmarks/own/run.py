"""Running the measures of Headrace alone, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uvloop

from benchmarks.own.durations import durations
from benchmarks.own.growth import growth
from benchmarks.own.scripts import script_times
from benchmarks.profile.measure import profile
from benchmarks.redis_server import Server
from benchmarks.schedule import Effort

MEASURES = ("durations", "growth", "scripts", "profile")


def run(measure: str, server: Server, effort: Effort, tell: Callable[[str], None]) -> Any:
    """One measure; ``tell`` is given a line whenever something new begins."""
    match measure:
        case "durations":
            return durations(server, seconds=effort.duration_s, rounds=effort.duration_rounds, tell=tell)
        case "growth":
            return uvloop.run(growth(server, waiting=effort.waiting, tell=tell))
        case "scripts":
            most = max(effort.waiting)
            return {
                "waiting": most,
                "calls": uvloop.run(script_times(server, waiting=most, samples=effort.script_calls, tell=tell)),
            }
        case "profile":
            tell(f"profile: a drain of {effort.profiled:,} no-op tasks")
            return profile(server, tasks=effort.profiled)
        case _:
            raise ValueError(measure)
