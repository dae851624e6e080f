"""Faults, again and again, while tasks flow."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import OutOfMemory, TaskHandle, TaskState
from tests.chaos.drill import Drill, by_length
from tests.chaos.drill_app import LEASE_S
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.drill


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    with RedisServer([("appendonly", "yes"), ("appendfsync", "always")]) as server:
        yield server


async def test_workers_killed_with_9(own_redis: RedisServer, tenant: str) -> None:
    kills, per_kill = by_length(6, 1000), by_length(60, 1000)
    async with Drill(own_redis, tenant) as drill:
        for _ in range(kills):
            producing = asyncio.create_task(drill.produce(per_kill, seconds=0.1))
            (await drill.busy_worker()).send(signal.SIGKILL)
            await producing
        report = await drill.check()
    print(f"\nkill -9 x {kills}: {report}")
    assert report.recoveries_s, "no worker was killed while it held a task: the drill proves nothing"


async def test_workers_stopped_for_longer_than_their_lease(own_redis: RedisServer, tenant: str) -> None:
    stops, per_stop = by_length(3, 500), by_length(60, 200)
    async with Drill(own_redis, tenant) as drill:
        for _ in range(stops):
            producing = asyncio.create_task(drill.produce(per_stop, seconds=0.1))
            victim = await drill.busy_worker()
            victim.send(signal.SIGSTOP)
            await asyncio.sleep(LEASE_S * 1.5)  # the fault itself: longer than the lease
            victim.send(signal.SIGCONT)
            await producing
        report = await drill.check()
    print(f"\nSIGSTOP x {stops}: {report}")
    assert report.recoveries_s


async def test_redis_killed_with_every_write_on_disk(durable_redis: RedisServer, tenant: str) -> None:
    kills, per_kill = by_length(3, 200), by_length(100, 500)
    async with Drill(durable_redis, tenant) as drill:
        for _ in range(kills):
            producing = asyncio.create_task(drill.produce(per_kill, seconds=0.05))
            await drill.busy_worker()
            durable_redis.kill()
            await asyncio.to_thread(durable_redis.start)
            await producing
        report = await drill.check()
    print(f"\nRedis kill -9 x {kills}: {report}")


async def test_scripts_flushed_ten_times_a_second(own_redis: RedisServer, tenant: str) -> None:
    tasks, flushes = by_length(500, 300_000), 0
    async with Drill(own_redis, tenant) as drill:
        producing = asyncio.create_task(drill.produce(tasks))
        with own_redis.client() as client:
            while not producing.done() or await drill.completed() < tasks:
                client.script_flush()
                flushes += 1
                await asyncio.sleep(0.1)
        await producing
        report = await drill.check()
    print(f"\nSCRIPT FLUSH x {flushes}: {report}")
    assert flushes > 5
    assert report.executed_again == 0


async def test_memory_full(tenant: str) -> None:
    with RedisServer() as server:
        async with Drill(server, tenant) as drill:
            await drill.produce(200)
            with server.client() as client:
                used = client.info("memory")["used_memory"]
                client.config_set("maxmemory", used + by_length(1 << 20, 8 << 20))
                task = drill.app.remote("step", queue="jobs")

                async def fill() -> None:
                    for _ in range(100_000):
                        handles = await drill.app.enqueue_many([task.call(0.0) for _ in range(100)])
                        drill.confirmed.extend(handle.id for handle in handles)

                with pytest.raises(OutOfMemory, match="Redis has reached maxmemory; the task was not stored"):
                    await fill()
                # Claims, heartbeats and settles go on: what was confirmed is worked off while enqueue is refused.
                await drill.until_completed(len(drill.confirmed))
                client.config_set("maxmemory", 0)
            await drill.produce(50)
            report = await drill.check()
    print(f"\nmaxmemory: {report}")


async def _is_dead_lettered(task: TaskHandle[Any]) -> bool:
    return await task.state() is TaskState.DEAD_LETTER


async def test_poison_is_dead_lettered_after_three_crashes(own_redis: RedisServer, tenant: str) -> None:
    async with Drill(own_redis, tenant) as drill:
        bad = await drill.app.remote("poison", queue="jobs").enqueue()
        await drill.produce(100)
        await drill.until_completed(100)
        await eventually(lambda: _is_dead_lettered(bad), timeout_s=120, message="the poison was not dead-lettered")
        record = await bad.record()
    assert (record.state, record.reason) == (TaskState.DEAD_LETTER, "poison")
    assert [attempt.reason for attempt in record.history] == ["lease_expired"] * 3
