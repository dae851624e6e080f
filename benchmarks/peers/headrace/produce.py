"""Enqueue: many with an event loop, one at a time without, as each is fastest."""

import asyncio

from benchmarks.peers.headrace.tasks import app, noop, probe
from benchmarks.peers.programs import PAYLOAD, produce, run_on_uvloop

BATCH = 1000
AT_ONCE = 2
"""Calls under way: Redis works on one while the next is made."""


async def _bulk(count: int) -> None:
    sizes = (min(BATCH, count - start) for start in range(0, count, BATCH))

    async def some() -> None:
        for size in sizes:
            await app.enqueue_many([noop.call(PAYLOAD) for _ in range(size)])

    async with app:
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def bulk(count: int) -> None:
    """In calls of a thousand."""
    run_on_uvloop(lambda: _bulk(count))


if __name__ == "__main__":
    app.blocking.stats("bench")  # connected before the clock starts, as the others are
    produce(bulk=bulk, single=noop.blocking.enqueue, probe=probe.blocking.enqueue)
    app.blocking.close()
