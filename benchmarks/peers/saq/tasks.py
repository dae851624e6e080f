"""The queue, the no-op, the probe and the worker's settings."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found"

from typing import Any

import uvloop
from saq import Queue

from benchmarks.peers.programs import answer_probe, concurrency, redis_url

uvloop.install()  # `saq` makes its loop by asyncio's policy

queue = Queue.from_url(redis_url(), max_concurrent_ops=32)


async def noop(ctx: dict[str, Any], *, payload: str) -> None:
    """Nothing."""


async def probe(ctx: dict[str, Any], *, payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)


settings = {"queue": queue, "functions": [noop, probe], "concurrency": concurrency()}
