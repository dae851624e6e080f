"""Enqueue."""

import asyncio

from benchmarks.peers.headrace.tasks import app, noop, probe
from benchmarks.peers.programs import PAYLOAD, produce_async, run_on_uvloop

BATCH = 1000
AT_ONCE = 2
"""Calls under way: Redis works on one while the next is made."""


async def bulk(count: int) -> None:
    """In calls of a thousand."""
    sizes = (min(BATCH, count - start) for start in range(0, count, BATCH))

    async def some() -> None:
        for size in sizes:
            await app.enqueue_many([noop.call(PAYLOAD) for _ in range(size)])

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def main() -> None:
    """Produce, then close the connections."""
    async with app:
        await app.redis_backend().queue("bench")  # connected before the clock starts, as the others are
        await produce_async(bulk=bulk, single=noop.enqueue, probe=probe.enqueue)


if __name__ == "__main__":
    run_on_uvloop(main)
