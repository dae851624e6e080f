"""A queue for the tests of single verbs. A module whose tests need a queue of another kind has its own ``bench``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from headrace.model.config import QueueConfig
from tests.support.bench import CONFIG, WORKER, Bench, OpenBench, open_bench


@pytest.fixture
async def bench(frozen_redis, tenant) -> AsyncIterator[Bench]:
    """The queue ``CONFIG``, with one worker registered."""
    async with open_bench(frozen_redis, tenant, CONFIG, WORKER) as bench:
        yield bench


@pytest.fixture
def bench_with(frozen_redis, tenant) -> OpenBench:
    """A queue with a configuration of the test's own: ``async with bench_with(max_crashes=2) as bench``."""

    def open_with(*workers: str, **settings: Any) -> AbstractAsyncContextManager[Bench]:
        return open_bench(frozen_redis, tenant, QueueConfig(CONFIG.name, **settings), *(workers or (WORKER,)))

    return open_with
