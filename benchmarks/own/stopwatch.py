"""How long calls take on the server.

Redis counts the time of its scripts itself; the difference before and after a call is that call's. The slow log
would tell the same, but with a threshold of nothing it also logs, and thereby slows, every command in a script.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Awaitable
from typing import TypeVar

from benchmarks.measures import Figures
from benchmarks.redis_server import Server

T = TypeVar("T")


class Stopwatch:
    """Notes the times of calls by name, in the order in which the names come up."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._taken_us: dict[str, list[float]] = {}

    async def time(self, name: str, call: Awaitable[T]) -> T:
        """Await ``call`` and note what it took."""
        before_us = self._server.script_us()
        answer = await call
        self._taken_us.setdefault(name, []).append(self._server.script_us() - before_us)
        return answer

    def rows(self) -> list[Figures]:
        """One per name."""
        return [
            {
                "call": name,
                "calls": len(taken_us),
                "p50_ms": statistics.median(taken_us) / 1e3,
                "p99_ms": sorted(taken_us)[math.ceil(len(taken_us) * 0.99) - 1] / 1e3,
                "max_ms": max(taken_us) / 1e3,
            }
            for name, taken_us in self._taken_us.items()
        ]
