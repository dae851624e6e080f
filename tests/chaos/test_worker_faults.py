"""Workers that die, freeze, crash, run out of memory, or come all at once."""

from __future__ import annotations

import asyncio

import pytest

from headrace import TaskHandle, TaskState
from tests.chaos.drill import Drill, open_drill
from tests.chaos.drill_app import MEBIBYTE, QUEUE
from tests.chaos.fleet import MEMORY_LIMIT_BYTES
from tests.chaos.forms import sized
from tests.support.redis_server import RedisServer
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.drill

BEGAN_AGAIN = "from the fault to the task's handler beginning again in another worker"
RECOVERY_BAR_S = 5.0
"""What the recovery may take on top of the lease."""
KILL_EVERY_S = 0.8


async def test_worker_kill(own_redis: RedisServer, tenant: str) -> None:
    kills = sized(short=8, medium=30, long=1000)
    per_kill = sized(short=200, medium=1000, long=1000)
    lease_s = 3.0
    async with open_drill(
        "worker_kill", own_redis, tenant, workers=4, concurrency=20, lease_s=lease_s, batch=1000, backlog=1000
    ) as drill:
        drill.faults_wanted = kills
        while drill.faults < kills:
            await drill.ask_for(per_kill)
            await drill.kill_a_busy_worker()
            drill.faults += 1
            # Without a pause workers would live for two seconds on average, and one task be met by several kills.
            await asyncio.sleep(KILL_EVERY_S)
        row = await drill.finish("a busy worker is killed with SIGKILL", drill.faults, BEGAN_AGAIN)
        assert drill.executions.still_interrupted() == []
    assert row.recovery_p99_s is not None
    assert row.recovery_p99_s <= lease_s + RECOVERY_BAR_S


async def test_worker_stop(own_redis: RedisServer, tenant: str) -> None:
    stops = sized(short=6, medium=30, long=500)
    per_stop, at_a_time = 100, 3
    lease_s = 1.2
    async with open_drill("worker_stop", own_redis, tenant, workers=5, lease_s=lease_s) as drill:
        drill.faults_wanted = stops
        while drill.faults < stops:
            await drill.ask_for(at_a_time * per_stop)
            victims: list[WorkerProcess] = []
            for _ in range(at_a_time):
                victim = await drill.busy_worker()
                victims.append(victim)
                drill.faults += 1 if drill.fleet.stop(victim) else 0
            await asyncio.sleep(lease_s * 1.5)  # the fault itself: longer than the lease
            for victim in victims:
                drill.fleet.resume(victim)
        row = await drill.finish("a busy worker is stopped for 1.5 leases, then continued", drill.faults, BEGAN_AGAIN)
        assert drill.fleet.deaths == 0, "a worker that was frozen goes on afterwards"
    assert row.executed_again > 0, "no lease was taken from a frozen worker: the drill proves nothing"


async def test_poison(own_redis: RedisServer, tenant: str) -> None:
    poisons = sized(short=1, medium=3, long=50)
    per_poison = sized(short=100, medium=100, long=200)
    async with open_drill("poison", own_redis, tenant, workers=3, lease_s=1.2, max_crashes=3) as drill:
        drill.faults_wanted = poisons
        bad: list[TaskHandle] = []
        for _ in range(poisons):
            drill.producer.wanted += per_poison + 1
            bad.extend(await drill.ledger.enqueue(drill.app, [drill.app.remote("poison", queue=QUEUE).call()]))
            await drill.until(lambda: drill.checker.dead_letters >= len(bad), "the poison was not dead-lettered")
            await drill.until(drill.all_settled, "the others were not completed")
            drill.faults += 1
        await drill.finish("a task kills every worker it meets", 3 * poisons, BEGAN_AGAIN, dead=poisons)
        for task in bad:
            record = await task.record()
            assert (record.state, record.reason) == (TaskState.DEAD_LETTER, "poison")
            assert [attempt.reason for attempt in record.history] == ["lease_expired"] * 3
        assert drill.fleet.deaths >= 3 * poisons


async def _send(drill: Drill, handler: str, *arguments: object, times: int) -> None:
    task = drill.app.remote(handler, queue=QUEUE)
    await drill.ledger.enqueue(drill.app, [task.call(*arguments) for _ in range(times)])
    drill.producer.wanted += times
    drill.faults += times


async def test_handler_block(own_redis: RedisServer, tenant: str) -> None:
    blocks = sized(short=2, medium=6, long=100)
    lease_s = 1.2
    async with open_drill("handler_block", own_redis, tenant, lease_s=lease_s) as drill:
        drill.faults_wanted = blocks
        while drill.faults < blocks:
            drill.producer.wanted += 100
            await _send(drill, "block", lease_s * 2, times=2)
            await drill.until(lambda: drill.checker.settled >= len(drill.ledger.confirmed) - 50, "it did not end")
        row = await drill.finish("a handler blocks the worker's event loop for two leases", drill.faults)
        assert drill.fleet.deaths == 0, drill.fleet.last_words
    # The heartbeat has a thread of its own and renews what the worker runs. It does not know of tasks in the answer to
    # a claim that the blocked loop has not read yet: half of the slots for each of the two lanes, at most.
    assert row.executed_again <= drill.faults * 10


async def test_handler_crash(own_redis: RedisServer, tenant: str) -> None:
    rounds = sized(short=1, medium=3, long=100)
    async with open_drill("handler_crash", own_redis, tenant, workers=3, lease_s=1.2) as drill:
        drill.faults_wanted = 2 * rounds
        for _ in range(rounds):
            drill.producer.wanted += 100
            await _send(drill, "crash_once", "exit", times=1)
            await _send(drill, "crash_once", "segfault", times=1)
            await drill.until(drill.all_settled, "it was not completed")
        await drill.finish("a handler ends the process, by os._exit or a segmentation fault", drill.faults, BEGAN_AGAIN)
        assert drill.executions.still_interrupted() == []
        assert drill.fleet.deaths > 0


async def test_handler_memory_killed(own_redis: RedisServer, tenant: str) -> None:
    rounds = sized(short=1, medium=3, long=50)
    async with open_drill(
        "handler_memory_killed",
        own_redis,
        tenant,
        lease_s=1.2,
        address_space_bytes=4096 * MEBIBYTE,  # whatever goes wrong, the machine is safe
        killed_above_bytes=MEMORY_LIMIT_BYTES,
    ) as drill:
        drill.faults_wanted = rounds
        for _ in range(rounds):
            drill.producer.wanted += 100
            await _send(drill, "eat_memory", times=1)
            await drill.until(drill.all_settled, "it was not completed")
        await drill.finish("a handler eats memory until its worker is killed for it", drill.faults, BEGAN_AGAIN)
        assert drill.fleet.kills_for_memory >= rounds
        assert drill.executions.still_interrupted() == []


async def test_handler_memory_refused(own_redis: RedisServer, tenant: str) -> None:
    rounds = sized(short=1, medium=3, long=50)
    async with open_drill(
        "handler_memory_refused", own_redis, tenant, lease_s=1.2, address_space_bytes=1536 * MEBIBYTE
    ) as drill:
        drill.faults_wanted = rounds
        for _ in range(rounds):
            drill.producer.wanted += 100
            await _send(drill, "eat_memory", times=1)
            await drill.until(drill.all_settled, "it was not completed")
        row = await drill.finish("a handler eats memory until it gets no more (MemoryError)", drill.faults)
    assert row.executed_again >= rounds
