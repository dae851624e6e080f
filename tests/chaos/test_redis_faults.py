"""Redis that is killed, forgets its scripts, freezes, or is full."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
import redis

from headrace import OutOfMemory
from tests.chaos.drill import Drill, open_drill
from tests.chaos.drill_app import QUEUE
from tests.chaos.forms import sized
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.drill

FIRST_COMPLETED = "from Redis answering again to the next completed task"
RECOVERY_BAR_S = 10.0


async def test_redis_kill(durable_redis: RedisServer, tenant: str) -> None:
    kills = sized(short=4, medium=15, long=200)
    per_kill = 500
    async with open_drill("redis_kill", durable_redis, tenant) as drill:
        drill.faults_wanted = kills
        pids = drill.fleet.pids
        while drill.faults < kills:
            await drill.ask_for(per_kill)
            await drill.busy_worker()
            durable_redis.kill()
            durable_redis.start_without_waiting()
            await _until_it_answers(durable_redis)
            drill.recoveries_s.append(await drill.first_completion())
            drill.faults += 1
        row = await drill.finish("Redis is killed with SIGKILL (appendfsync always)", drill.faults, FIRST_COMPLETED)
        assert drill.fleet.pids == pids, "no worker had to be restarted"
        assert drill.fleet.deaths == 0, drill.fleet.last_words
    assert max(drill.recoveries_s) <= RECOVERY_BAR_S, row


async def _until_it_answers(server: RedisServer) -> None:
    deadline_s = time.monotonic() + 120
    with server.client(socket_timeout=5.0) as probe:
        while True:
            try:
                probe.ping()
                return
            except (redis.ConnectionError, redis.TimeoutError):  # loading counts as well
                assert time.monotonic() < deadline_s, "Redis did not come back"
                await asyncio.sleep(0.005)


async def test_script_flush(own_redis: RedisServer, tenant: str) -> None:
    lasts_s = sized(short=5.0, medium=20.0, long=600.0)
    async with open_drill("script_flush", own_redis, tenant, backlog=1000) as drill:
        drill.faults_wanted = round(lasts_s * 10)
        began_s = time.monotonic()
        with own_redis.client() as client:
            while time.monotonic() - began_s < lasts_s:
                drill.producer.wanted = drill.checker.completed + 2000  # always something to do
                client.script_flush()
                drill.faults += 1
                await asyncio.sleep(0.1)
        await drill.finish("SCRIPT FLUSH, every 100 ms", drill.faults)
        assert drill.fleet.deaths == 0, drill.fleet.last_words


async def _frozen(drill: Drill, times: int, freeze: str, seconds: float) -> None:
    drill.faults_wanted = times
    with drill.server.client(socket_timeout=60) as client:
        while drill.faults < times:
            await drill.ask_for(300)
            await drill.busy_worker()
            if freeze == "CLIENT PAUSE":
                client.client_pause(round(seconds * 1000))
                await asyncio.sleep(seconds)
            else:
                await asyncio.to_thread(client.execute_command, "DEBUG", "SLEEP", seconds)
            drill.recoveries_s.append(await drill.first_completion())
            drill.faults += 1


@pytest.mark.parametrize("freeze", ["CLIENT PAUSE", "DEBUG SLEEP"], ids=["client_pause", "debug_sleep"])
async def test_redis_frozen(own_redis: RedisServer, tenant: str, freeze: str) -> None:
    times = sized(short=2, medium=10, long=100)
    lease_s = 1.2
    name = f"redis_frozen_{freeze.split()[1].lower()}"
    async with open_drill(name, own_redis, tenant, lease_s=lease_s) as drill:
        await _frozen(drill, times, freeze, lease_s * 1.5)
        await drill.finish(
            f"Redis answers nobody for 1.5 leases ({freeze})", times, "from the end of it to the next completed task"
        )
        assert drill.fleet.deaths == 0, drill.fleet.last_words


async def _fill(drill: Drill) -> None:
    task = drill.app.remote("step", queue=QUEUE)
    while True:
        calls = [task.call(0.0) for _ in range(100)]
        try:
            await drill.ledger.enqueue(drill.app, calls)
        except OutOfMemory:
            drill.ledger.offered -= len(calls)  # the checker shall see that a refused task is not stored
            raise
        drill.producer.wanted = len(drill.ledger.confirmed)


def _has_completed(drill: Drill, count: int) -> bool:
    return drill.checker.completed >= count


async def test_redis_full(own_redis: RedisServer, tenant: str) -> None:
    rounds = sized(short=2, medium=5, long=50)
    async with open_drill("redis_full", own_redis, tenant) as drill:
        drill.faults_wanted = rounds
        with own_redis.client() as client:
            while drill.faults < rounds:
                drill.producer.wanted = len(drill.ledger.confirmed) + 200
                await drill.until(lambda: not drill.producer.behind, "a Redis with room took no tasks")
                client.config_set("maxmemory", client.info("memory")["used_memory"] + (1 << 20))
                with pytest.raises(OutOfMemory, match="Redis has reached maxmemory; the task was not stored"):
                    await _fill(drill)
                # Claims, heartbeats and settles go on: what was confirmed is worked off while enqueue is refused.
                confirmed = len(drill.ledger.confirmed)
                await drill.until(partial(_has_completed, drill, confirmed), "a full Redis was not worked off")
                client.config_set("maxmemory", 0)
                drill.faults += 1
            drill.producer.wanted += 50
        await drill.finish("maxmemory is reached (noeviction); enqueue is refused", drill.faults)
        assert drill.fleet.deaths == 0, drill.fleet.last_words
