"""Calls that wait for replicas: what they promise, what they say when the promise cannot be kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace.model.errors import BackendUnavailable, Unconfirmed
from headrace.model.outcomes import Outcome, Settlement, SettleStatus
from headrace.queue.confirmation import CONFIRMED_SCRIPTS
from headrace.queue.connection import Connection
from headrace.queue.queue import Queue
from headrace.queue.scripts import script
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import ScriptCall, Transport
from tests.support.bench import CONFIG, WORKER, new_task
from tests.support.cluster import RedisClusterServers
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SentinelSet
from tests.support.topology import Installation

NEVER_MS = 3_600_000  # nobody is to take over while a test keeps replicas silent


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet(down_after_ms=NEVER_MS) as servers:
        yield servers


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterServers]:
    with RedisClusterServers(node_timeout_ms=NEVER_MS) as servers:
        yield servers


@pytest.fixture
def replicas(sentinels: SentinelSet) -> Iterator[list[RedisServer]]:
    found = [server for server in sentinels.servers if server is not sentinels.primary]
    yield found
    for server in found:
        server.unpause()


class HastyTransport(Transport):
    """Gives up soon: for tests that wait for the error."""

    async def run(self, *calls: ScriptCall, patience_s: float = 0.3) -> list[Any]:
        return await super().run(*calls, patience_s=patience_s)


@contextlib.asynccontextmanager
async def queue_on(
    servers: Installation, tenant: str, options: str, kind: type[Transport] = Transport
) -> AsyncIterator[Queue]:
    connection = Connection(RedisSettings.from_url(f"{servers.url}?{options}"))
    await connection.open()
    try:
        queue = Queue(kind(connection), tenant, CONFIG.name)
        await queue.define(CONFIG)
        await queue.heartbeat(WORKER, capacity=5)
        yield queue
    finally:
        await connection.aclose()


def waits_of(server: RedisServer) -> int:
    with server.client() as client:
        calls: int = client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0)
    return calls


async def test_what_decides_a_tasks_fate_waits_and_the_rest_does_not(sentinels: SentinelSet, tenant: str):
    async with queue_on(sentinels, tenant, "confirm_replicas=2") as queue:
        with sentinels.primary.client() as client:
            for name in CONFIRMED_SCRIPTS:  # else their first call is made twice, and waited for twice
                client.script_load(script(name).source)
        before = waits_of(sentinels.primary)
        await queue.enqueue([new_task(), new_task()])
        assert waits_of(sentinels.primary) == before + 1
        (task, other) = (await queue.claim(WORKER, 2, number=1)).tasks
        await queue.heartbeat(WORKER, held=[(task.task_id, task.token), (other.task_id, other.token)])
        await queue.forward()
        assert waits_of(sentinels.primary) == before + 1
        settled = [Settlement(task.task_id, task.token, Outcome.COMPLETED, "null")]
        assert await queue.settle(settled) == [SettleStatus.SETTLED]
        assert (await queue.settle_and_claim(settled, WORKER, 1, number=2))[0] == [SettleStatus.DUPLICATE]
        await queue.cancel([other.task_id])
        await queue.replay()
        assert waits_of(sentinels.primary) == before + 5


async def test_without_the_setting_nothing_waits(sentinels: SentinelSet, tenant: str):
    before = waits_of(sentinels.primary)
    async with queue_on(sentinels, tenant, "pool_size=2") as queue:
        await queue.enqueue([new_task()])
    assert waits_of(sentinels.primary) == before


async def test_silent_replicas_are_told_to_the_caller_and_the_task_is_stored_once(
    sentinels: SentinelSet, replicas: list[RedisServer], tenant: str
):
    async with queue_on(sentinels, tenant, "confirm_replicas=1&confirm_timeout_s=0.1", HastyTransport) as queue:
        for server in replicas:
            server.pause()
        tasks = [new_task()]
        with pytest.raises(Unconfirmed, match=r"stored on the primary, but 0 of 1 replicas confirmed it within 0.1 s"):
            await queue.enqueue(tasks)
        # The same again: there is nothing left to write, and still nobody else has it.
        with pytest.raises(BackendUnavailable, match="0 of 1 replicas"):
            await queue.enqueue(tasks)
        for server in replicas:
            server.unpause()
        assert [result.task_id for result in await queue.enqueue(tasks)] == [tasks[0].task_id]
        assert len((await queue.claim(WORKER, 5, number=1)).tasks) == 1


async def test_one_replica_of_two_is_not_enough_when_two_are_asked_for(
    sentinels: SentinelSet, replicas: list[RedisServer], tenant: str
):
    async with queue_on(sentinels, tenant, "confirm_replicas=2&confirm_timeout_s=0.1", HastyTransport) as queue:
        replicas[0].pause()
        with pytest.raises(Unconfirmed, match="1 of 2 replicas"):
            await queue.enqueue([new_task()])


async def test_a_short_silence_of_the_replicas_is_waited_out(
    sentinels: SentinelSet, replicas: list[RedisServer], tenant: str
):
    async with queue_on(sentinels, tenant, "confirm_replicas=2&confirm_timeout_s=0.2") as queue:
        for server in replicas:
            server.pause()
        enqueuing = asyncio.create_task(queue.enqueue([new_task()]))
        await asyncio.sleep(0.7)  # the silence itself: longer than one wait
        assert not enqueuing.done()
        for server in replicas:
            server.unpause()
        await enqueuing
        assert len((await queue.claim(WORKER, 5, number=1)).tasks) == 1


async def test_a_duplicate_is_not_confirmed_before_the_task_it_leads_to(
    sentinels: SentinelSet, replicas: list[RedisServer], tenant: str
):
    """The second caller writes nothing, so there is no write of its own that could be missing on a replica."""
    async with (
        queue_on(sentinels, tenant, "pool_size=2") as careless,
        queue_on(sentinels, tenant, "confirm_replicas=1&confirm_timeout_s=0.1", HastyTransport) as careful,
    ):
        for server in replicas:
            server.pause()
        await careless.enqueue([new_task(idempotency_key="order-1")])
        with pytest.raises(Unconfirmed):
            await careful.enqueue([new_task(idempotency_key="order-1")])


async def test_settling_is_confirmed_with_the_memory_full(sentinels: SentinelSet, tenant: str):
    async with queue_on(sentinels, tenant, "confirm_replicas=2") as queue:
        await queue.enqueue([new_task()])
        (task,) = (await queue.claim(WORKER, 1, number=1)).tasks
        with sentinels.primary.client() as client:
            client.config_set("maxmemory", "1")
            try:
                settlement = Settlement(task.task_id, task.token, Outcome.COMPLETED, "null")
                assert await queue.settle([settlement]) == [SettleStatus.SETTLED]
            finally:
                client.config_set("maxmemory", "0")


async def test_scripts_that_the_server_forgot_are_sent_along(sentinels: SentinelSet, tenant: str):
    async with queue_on(sentinels, tenant, "confirm_replicas=2") as queue:
        await queue.enqueue([new_task()])
        with sentinels.primary.client() as client:
            client.script_flush()
        before = waits_of(sentinels.primary)
        await queue.enqueue([new_task()])
        assert waits_of(sentinels.primary) == before + 2, "the confirmation belongs to the calls that ran"
        assert len((await queue.claim(WORKER, 5, number=1)).tasks) == 2


async def test_in_a_cluster_the_replica_of_the_queues_own_node_is_asked(cluster: RedisClusterServers, tenant: str):
    async with queue_on(cluster, tenant, "confirm_replicas=1&confirm_timeout_s=0.1", HastyTransport) as queue:
        await queue.enqueue([new_task()])
        replica = cluster.replica_of(queue.keys.config)
        replica.pause()
        try:
            with pytest.raises(Unconfirmed, match="0 of 1 replicas"):
                await queue.enqueue([new_task()])
        finally:
            replica.unpause()
        await queue.enqueue([new_task()])


async def test_in_a_cluster_calls_and_confirmation_move_together(cluster: RedisClusterServers, tenant: str):
    async with queue_on(cluster, tenant, "confirm_replicas=1") as queue:
        await queue.enqueue([new_task()])
        old = cluster.primary_of(queue.keys.config)
        new = cluster.failover(queue.keys.config)
        before = waits_of(new)
        # The old owner answers MOVED; alone, WAIT would have stayed with it.
        await queue.enqueue([new_task()])
        assert waits_of(new) > before
        assert new is not old
        assert len((await queue.claim(WORKER, 5, number=1)).tasks) == 2
