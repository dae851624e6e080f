"""Enqueue. arq has no call for many jobs: the best is many calls at once."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found"

import asyncio

from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.peers.programs import PAYLOAD, produce_async, redis_url, run_on_uvloop

AT_ONCE = 8
"""More do not make it faster, and each needs a connection."""


async def main() -> None:
    """Produce, then close the connections."""
    pool = await create_pool(RedisSettings.from_dsn(redis_url()))

    async def single(payload: str) -> None:
        await pool.enqueue_job("noop", payload)

    async def probe(payload: str) -> None:
        await pool.enqueue_job("probe", payload)

    async def bulk(count: int) -> None:
        for start in range(0, count, AT_ONCE):
            await asyncio.gather(*(single(PAYLOAD) for _ in range(min(AT_ONCE, count - start))))

    try:
        await produce_async(bulk=bulk, single=single, probe=probe)
    finally:
        await pool.aclose()


if __name__ == "__main__":
    run_on_uvloop(main)
