"""What one task costs when many others wait: claim and settle, in batches as a busy worker sends them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.measures import Figures
from benchmarks.own.queues import BATCH, Bench, bench, completed
from benchmarks.redis_server import Server
from headrace.queue.queue import Queue

BATCHES = 5
PER_ROUND = BATCH * BATCHES
"""Tasks of one round: claimed, settled, and replaced by new ones before the next round."""
ROUNDS = 40
QUEUES = 100
TENANTS = 1000


async def growth(server: Server, *, waiting: Sequence[int], tell: Callable[[str], None]) -> list[Figures]:
    """One row per number of waiting tasks; the largest once more over many queues and over many tenants."""
    rows: list[Figures] = []
    async with bench(server) as own:
        queue = await own.queue("bench", "bench")
        present = 0
        for count in waiting:
            tell(f"growth: {count:,} waiting tasks")
            before = server.used_memory() - _used_by(present, rows)
            await own.fill([queue], count - present)
            present = count
            rows.append(await _row(own, f"{count:,} in one queue", [queue], count, server.used_memory() - before))
    most = max(waiting)
    for title, names in (
        (f"{most:,} over {QUEUES} queues", [("bench", f"queue-{number}") for number in range(QUEUES)]),
        (f"{most:,} over {TENANTS:,} tenants", [(f"tenant-{number}", "bench") for number in range(TENANTS)]),
    ):
        async with bench(server) as own:
            tell(f"growth: {title}")
            before = server.used_memory()
            queues = [await own.queue(*name) for name in names]
            each = max(most // len(queues), PER_ROUND + BATCH)
            await own.fill(queues, each)
            rows.append(await _row(own, title, queues, each * len(queues), server.used_memory() - before))
    return rows


def _used_by(present: int, rows: Sequence[Figures]) -> float:
    """What the tasks that are there already take: the difference is to be that of all tasks."""
    return float(rows[-1]["bytes_per_task"] * present) if rows else 0.0


async def _row(own: Bench, title: str, queues: Sequence[Queue], waiting: int, used: float) -> Figures:
    cpu_us, wall_us, script_us = [], [], []
    for number in range(ROUNDS):
        # Evenly over all queues: with many of them, each round comes to one that has rested.
        queue = queues[number * len(queues) // ROUNDS % len(queues)]
        await own.register(queue)
        server = own.server
        scripts, cpu_s, started_s = server.script_us(), server.cpu_s(), time.perf_counter()
        held = await own.claim(queue, BATCH)
        for _ in range(BATCHES - 1):
            held = await own.settle_and_claim(queue, held)
        await queue.settle(completed(held))
        wall_us.append((time.perf_counter() - started_s) / PER_ROUND * 1e6)
        cpu_us.append((server.cpu_s() - cpu_s) / PER_ROUND * 1e6)
        script_us.append((server.script_us() - scripts) / PER_ROUND)
        await own.fill([queue], PER_ROUND)
    return {
        "title": title,
        "waiting": waiting,
        "redis_cpu_us": statistics.median(cpu_us),
        "redis_script_us": statistics.median(script_us),
        "wall_us": statistics.median(wall_us),
        "bytes_per_task": used / waiting,
    }
