"""A worker of short tasks holds more than it runs, and gives back what it cannot begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from headrace import Headrace, TaskState
from headrace.worker.worker import Worker
from tests.support.waiting import eventually

PATIENCE_S = 60.0
Running = Callable[..., AbstractAsyncContextManager[Worker]]


async def test_what_was_claimed_ahead_and_cannot_begin_goes_back_unspent(app: Headrace, running: Running) -> None:
    gate = asyncio.Event()

    @app.task(queue="jobs")
    async def short() -> None:
        """Over at once: the worker learns that it pays to hold tasks ready."""

    @app.task(queue="jobs")
    async def long() -> None:
        await gate.wait()

    async with running(concurrency=2):
        warm_up = await app.enqueue_many([short.call() for _ in range(300)])
        for task in warm_up:
            await task.result(PATIENCE_S)
        tasks = await app.enqueue_many([long.call() for _ in range(6)])

        async def only_two_are_held() -> bool:
            stats = await app.stats("jobs")
            return (stats.executing, stats.waiting) == (2, 4)

        # Two run; what else was claimed is handed back, and not claimed again as long as the two run.
        await eventually(only_two_are_held, timeout_s=PATIENCE_S)
        await asyncio.sleep(0.5)
        assert await only_two_are_held()
        states = [await task.state() for task in tasks]
        assert sorted(states) == sorted([TaskState.EXECUTING] * 2 + [TaskState.QUEUED] * 4)
        gate.set()
        for task in tasks:
            await task.result(PATIENCE_S)
            assert (await task.record()).retry_count == 0


async def test_a_drain_gives_back_what_was_claimed_ahead(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def short() -> None:
        await asyncio.sleep(0.002)

    async with running(concurrency=2, grace_s=5.0):
        tasks = await app.enqueue_many([short.call() for _ in range(2000)])
        for task in tasks[:100]:
            await task.result(PATIENCE_S)
    stats = await app.stats("jobs")
    assert stats.executing == 0
    assert stats.counters["completed"] + stats.waiting == 2000
    assert stats.counters.get("retrying", 0) == 0
    await app.aclose()
