"""Many workers in one process: ``python -m tests.chaos.many_workers COUNT``. They drain when stdin is closed."""

from __future__ import annotations

import asyncio
import sys

from headrace.observability.logs import configure_logs
from headrace.worker.worker import Worker
from tests.chaos.drill_app import make_app


async def main(count: int) -> None:
    workers = [Worker(make_app(), concurrency=2, grace_s=30) for _ in range(count)]
    running = asyncio.gather(*(worker.run() for worker in workers))
    told = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait({running, asyncio.ensure_future(told)}, return_when=asyncio.FIRST_COMPLETED)
    for worker in workers:
        worker.stop()
    await running


if __name__ == "__main__":
    configure_logs("error", "json")
    asyncio.run(main(int(sys.argv[1])))
