"""One worker process. Started here and not by `arq`, which would log two lines per job."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found"

from typing import Any

import uvloop
from arq import run_worker
from arq.connections import RedisSettings

from benchmarks.peers.programs import answer_probe, concurrency, redis_url


async def noop(ctx: dict[str, Any], payload: str) -> None:
    """Nothing."""


async def probe(ctx: dict[str, Any], payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)


class WorkerSettings:
    """arq's worker is configured by a class."""

    functions = (noop, probe)
    redis_settings = RedisSettings.from_dsn(redis_url())
    max_jobs = concurrency()
    queue_read_limit = 1000  # with the default it would sleep between polls although jobs are waiting
    keep_result = 0
    log_results = False


if __name__ == "__main__":
    uvloop.install()  # arq makes its loop by asyncio's policy
    run_worker(WorkerSettings)
