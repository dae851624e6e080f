"""Enqueue. SAQ has no call for many jobs: the best is many calls at once, as its own `map` does."""

import asyncio

from benchmarks.peers.programs import PAYLOAD, produce_async, run_on_uvloop
from benchmarks.peers.saq.tasks import queue

BATCH = 1000
# As it comes, SAQ gives up a job whose worker died. Another attempt makes it run at least once.
OPTIONS = {"retries": 3, "ttl": -1}
"""Time to live below 0: the job is deleted when it is done."""


async def enqueue(payload: str) -> None:
    """One no-op."""
    await queue.enqueue("noop", payload=payload, **OPTIONS)


async def probe(payload: str) -> None:
    """One probe."""
    await queue.enqueue("probe", payload=payload, **OPTIONS)


async def bulk(count: int) -> None:
    """Many at once."""
    for start in range(0, count, BATCH):
        await asyncio.gather(*(enqueue(PAYLOAD) for _ in range(min(BATCH, count - start))))


async def main() -> None:
    """Produce, then close the connections."""
    await queue.connect()
    try:
        await produce_async(bulk=bulk, single=enqueue, probe=probe)
    finally:
        await queue.disconnect()


if __name__ == "__main__":
    run_on_uvloop(main)
