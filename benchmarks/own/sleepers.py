"""Handlers that take a while, on the queue that the bench watches; and the program that enqueues them.

`benchmarks.own.bare` runs the very same functions with no queue at all.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from benchmarks.peers.programs import redis_url, run_on_uvloop
from headrace import Headrace, QueueConfig

BATCH = 1000

app = Headrace(redis_url(), tenant="bench", queues=[QueueConfig("bench")])


@app.task(queue="bench")
async def noop(seconds: float) -> None:
    """Done at once: what the concurrency allows at most."""


@app.task(queue="bench")
async def loop(seconds: float) -> None:
    """In the event loop."""
    await asyncio.sleep(seconds)


@app.task(queue="bench")
def thread(seconds: float) -> None:
    """In a thread."""
    time.sleep(seconds)


@app.task(queue="bench", run_in="process")
def process(seconds: float) -> None:
    """In a process of its own, waiting."""
    time.sleep(seconds)


@app.task(queue="bench", run_in="process")
def spin(seconds: float) -> None:
    """In a process of its own, using so much processor time: with more processes than cores it takes longer."""
    until_s = time.process_time() + seconds
    while time.process_time() < until_s:
        pass


KINDS: dict[str, Any] = {"noop": noop, "loop": loop, "thread": thread, "process": process, "spin": spin}


async def main() -> None:
    """``bulk N``: enqueue so many, of the kind and the duration that the environment names."""
    seconds, task = float(os.environ["BENCH_SECONDS"]), KINDS[os.environ["BENCH_KIND"]]
    count = int(sys.argv[2])
    async with app:
        for start in range(0, count, BATCH):
            await app.enqueue_many([task.call(seconds) for _ in range(min(BATCH, count - start))])
    sys.stdout.write("{}\n")


if __name__ == "__main__":
    run_on_uvloop(main)
