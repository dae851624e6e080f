"""Workers inside the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace import Headrace, Level, QueueConfig, RetryPolicy
from headrace.worker.worker import Worker
from tests.support.topology import Installation

QUICK = QueueConfig(
    "jobs",
    levels=(Level("high", max_retries=2, timeout_s=60), Level("low", max_retries=2, timeout_s=60)),
    lease_s=2.0,
    heartbeat_s=0.3,
    worker_dead_after_s=4.0,
    retry=RetryPolicy(base_s=0.02, max_s=0.1),
)


@pytest.fixture
def app(any_redis: Installation, tenant: str) -> Headrace:
    """An app of the test's own tenant, with the queues jobs and other. Close it by running a worker."""
    other = QueueConfig("other", lease_s=2.0, heartbeat_s=0.3)
    return Headrace(any_redis.url, tenant=tenant, queues=[QUICK, other])


@pytest.fixture
def running(app: Headrace) -> Callable[..., contextlib.AbstractAsyncContextManager[Worker]]:
    """``async with running(concurrency=2) as worker``: works inside the block, drains at its end."""

    @contextlib.asynccontextmanager
    async def run(**options: Any) -> AsyncIterator[Worker]:
        worker = Worker(app, **{"queues": ["jobs"], "grace_s": 0.0, **options})
        loop = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await loop

    return run
