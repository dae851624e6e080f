"""Worker processes that die, freeze, are drained, block, and lose their Redis: nothing lost, nothing settled twice."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from headrace import Headrace, TaskState
from tests.support.redis_server import RedisServer
from tests.support.topology import Installation
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess
from tests.worker import fault_app
from tests.worker.fault_app import LEASE_S, gate_key, ran_key

PATIENCE_S = 90


class Bench:
    """An app bound to the test's tenant, and what the workers wrote down."""

    def __init__(self, server: Installation, tenant: str) -> None:
        self.server = server
        self.tenant = tenant
        self.app = Headrace(server.url, tenant=tenant, queues=fault_app.app.declared_queues)
        self._client = server.client()

    def call(self, task: Any, *args: Any) -> Any:
        return self.app.remote(task.type, queue="jobs").call(*args)

    async def enqueue(self, task: Any, *args: Any, times: int = 1) -> list[Any]:
        return await self.app.enqueue_many([self.call(task, *args) for _ in range(times)])

    def worker(self, *arguments: str) -> WorkerProcess:
        return WorkerProcess(self.server, self.tenant, *arguments)

    def lines(self, what: str) -> list[list[str]]:
        """Executions noted by the handlers: task id, attempt, process id."""
        raw = [cast(bytes, line).decode().split(":") for line in self._client.lrange(ran_key(self.tenant), 0, -1)]
        return [rest for kind, *rest in raw if kind == what]

    def open_gate(self) -> None:
        self._client.set(gate_key(self.tenant), "1")

    async def until(self, predicate: Callable[[], bool], message: str) -> None:
        async def holds() -> bool:
            return predicate()

        await eventually(holds, timeout_s=PATIENCE_S, message=message)

    async def began(self, count: int) -> None:
        await self.until(lambda: len(self.lines("began")) >= count, f"{count} tasks did not begin")

    async def completed(self, count: int) -> None:
        async def all_done() -> bool:
            return (await self.app.stats("jobs")).counters.get("completed", 0) >= count

        await eventually(all_done, timeout_s=PATIENCE_S, message=f"{count} tasks were not completed")

    async def assert_settled_once(self, tasks: list[Any]) -> None:
        """Every task completed, exactly one completion counted for each, nothing left anywhere."""
        stats = await self.app.stats("jobs")
        assert stats.counters["enqueued"] == len(tasks)
        assert stats.counters["completed"] == len(tasks)
        assert (stats.waiting, stats.executing, stats.delayed, stats.dead_letter) == (0, 0, 0, 0)
        for task in tasks:
            assert await task.state() is TaskState.COMPLETED


@pytest.fixture
async def bench(any_redis: Installation, tenant: str) -> AsyncIterator[Bench]:
    made = Bench(any_redis, tenant)
    yield made
    await made.app.aclose()
    made._client.close()


async def test_kill_9_in_the_middle_of_tasks_loses_nothing(bench: Bench) -> None:
    tasks = await bench.enqueue(fault_app.nap, 0.1, times=120)
    with bench.worker("--concurrency", "5") as first, bench.worker("--concurrency", "5") as second:
        for victim in (first, second):
            await bench.began(len(bench.lines("began")) + 10)
            victim.send(signal.SIGKILL)
            victim.wait()
        with bench.worker("--concurrency", "10"):
            await bench.completed(120)
    await bench.assert_settled_once(tasks)
    reasons = {attempt.reason for task in tasks for attempt in (await task.record()).history}
    assert reasons == {"lease_expired"}, "the killed workers held leases, and only that spent attempts"


async def test_a_worker_frozen_past_its_lease_cannot_settle_when_it_returns(bench: Bench) -> None:
    (task,) = await bench.enqueue(fault_app.at_gate)
    with bench.worker() as frozen:
        await bench.began(1)
        frozen.send(signal.SIGSTOP)
        with bench.worker() as other:
            await bench.began(2)
            bench.open_gate()
            assert await task.result(timeout_s=PATIENCE_S) == other.pid
            frozen.send(signal.SIGCONT)
            await bench.until(lambda: "lease was lost" in frozen.log(), "the frozen worker did not notice")
            # It goes on to work as before.
            other.send(signal.SIGTERM)
            assert other.wait() == 0
            (again,) = await bench.enqueue(fault_app.nap, 0)
            assert await again.result(timeout_s=PATIENCE_S) == frozen.pid
    await bench.assert_settled_once([task, again])
    assert [attempt.reason for attempt in (await task.record()).history] == ["lease_expired"]


async def test_a_drain_lets_short_tasks_finish_and_hands_back_long_ones(bench: Bench) -> None:
    (short,) = await bench.enqueue(fault_app.nap, 1.0)
    long_ones = [
        (await bench.enqueue(fault_app.nap, 600))[0],
        (await bench.enqueue(fault_app.stubborn, 600))[0],
        (await bench.enqueue(fault_app.deaf, 600))[0],
    ]
    waiting = await bench.enqueue(fault_app.nap, 0, times=3)
    with bench.worker("--concurrency", "4", "--grace", "3") as worker:
        await bench.began(4)
        worker.send(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    assert await short.state() is TaskState.COMPLETED
    for task in long_ones:
        record = await task.record()
        assert (record.state, record.retry_count, record.history) == (TaskState.QUEUED, 0, ())
    for task in waiting:
        assert await task.state() is TaskState.QUEUED, "a draining worker claims nothing"
    assert await bench.app.workers("jobs") == [], "its record is gone"
    # Handed back means: at the place they had, before the ones that came later.
    positions = [await task.queue_position() for task in (*long_ones, *waiting)]
    assert positions == [1, 2, 3, 4, 5, 6]


async def test_a_second_signal_skips_the_grace(bench: Bench) -> None:
    (task,) = await bench.enqueue(fault_app.nap, 600)
    with bench.worker("--grace", "600") as worker:
        await bench.began(1)
        worker.send(signal.SIGTERM)
        await bench.until(lambda: '"draining"' in worker.log(), "the drain did not begin")
        worker.send(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    record = await task.record()
    assert (record.state, record.retry_count) == (TaskState.QUEUED, 0)


async def test_a_handler_that_blocks_the_loop_keeps_every_lease(bench: Bench) -> None:
    (neighbour,) = await bench.enqueue(fault_app.nap, 0.5)
    with bench.worker("--concurrency", "2"):
        await bench.began(1)
        (blocker,) = await bench.enqueue(fault_app.block_the_loop, LEASE_S * 3)
        with bench.worker("--concurrency", "2"):  # would take over what looks abandoned
            assert await blocker.result(timeout_s=PATIENCE_S) == 1
            await neighbour.result(timeout_s=PATIENCE_S)
    await bench.assert_settled_once([neighbour, blocker])
    assert len(bench.lines("began")) == 2, "neither was executed twice"


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    with RedisServer([("appendonly", "yes"), ("appendfsync", "always")]) as server:
        yield server


async def test_redis_killed_and_restarted_loses_nothing(durable_redis: RedisServer, tenant: str) -> None:
    bench = Bench(durable_redis, tenant)
    try:
        tasks = await bench.enqueue(fault_app.nap, 0.05, times=400)
        with bench.worker("--concurrency", "5") as first, bench.worker("--concurrency", "5") as second:
            for _ in range(3):
                seen = len(bench.lines("began"))
                await bench.began(min(400, seen + 40))
                durable_redis.kill()
                durable_redis.start()
            await bench.completed(400)
            assert first.running
            assert second.running
        await bench.assert_settled_once(tasks)
    finally:
        await bench.app.aclose()
        bench._client.close()


async def test_enqueue_waits_out_a_short_outage_and_stores_once(durable_redis: RedisServer, tenant: str) -> None:
    bench = Bench(durable_redis, tenant)
    try:
        await bench.enqueue(fault_app.nap, 0)
        durable_redis.kill()
        durable_redis.start_without_waiting()
        await bench.enqueue(fault_app.nap, 0, times=10)
        assert (await bench.app.stats("jobs")).waiting == 11
    finally:
        await bench.app.aclose()
        bench._client.close()
