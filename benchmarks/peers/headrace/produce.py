"""Enqueue: many with an event loop, one at a time without, as each is fastest."""

import asyncio
import sys

from benchmarks.peers.headrace.tasks import app, noop, probe
from benchmarks.peers.programs import PAYLOAD, produce, produce_async, run_on_uvloop

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


async def produce_many() -> None:
    """With an event loop."""
    async with app:
        await app.redis_backend().queue("bench")  # connected before the clock starts, as the others are
        await produce_async(bulk=bulk, single=noop.enqueue, probe=probe.enqueue)


def produce_one_by_one() -> None:
    """Without."""
    app.blocking.stats("bench")  # connected as above
    produce(bulk=lambda _: None, single=noop.blocking.enqueue, probe=probe.blocking.enqueue)
    app.blocking.close()


if __name__ == "__main__":
    if sys.argv[1] == "bulk":
        run_on_uvloop(produce_many)
    else:
        produce_one_by_one()
