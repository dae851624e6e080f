"""Enqueue. taskiq has no call for many tasks: the best is many calls at once."""

import asyncio

from benchmarks.peers.programs import PAYLOAD, produce_async, run_on_uvloop
from benchmarks.peers.taskiq.tasks import broker, noop, probe

AT_ONCE = 8
"""More do not make it faster, and each needs a connection."""


async def bulk(count: int) -> None:
    """Many at once."""
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(noop.kiq(PAYLOAD) for _ in range(min(AT_ONCE, count - start))))


async def main() -> None:
    """Produce, then close the connections. The start-up also makes the consumer group."""
    await broker.startup()
    try:
        await produce_async(bulk=bulk, single=noop.kiq, probe=probe.kiq)
    finally:
        await broker.shutdown()


if __name__ == "__main__":
    run_on_uvloop(main)
