"""Scripts through everything that happens to a Redis server: flushes, restarts, failovers, full memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from headrace.model.errors import BackendError, BackendUnavailable, OutOfMemory
from headrace.queue.connection import Connection
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import Script, ScriptCall, Transport
from tests.support.cluster import RedisClusterServers
from tests.support.redis_server import RedisServer, free_port
from tests.support.sentinel import SentinelSet
from tests.support.waiting import eventually, wait_until

PATIENT_S = 60.0


def lua(name: str, text: str) -> Script:
    source = text.encode()
    return Script(name=name, source=source, sha=hashlib.sha1(source, usedforsecurity=False).hexdigest())


PUT = lua("put", "redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]")
PUSH = lua("push", "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LRANGE', KEYS[1], 0, -1)")
APPEND = lua("append", "return redis.call('RPUSH', KEYS[1], ARGV[1])")
BROKEN = lua("broken", "return redis.call('LPUSH', KEYS[1], ARGV[1], nil)")
READ = lua("read", "return redis.call('GET', KEYS[1])")


def call(script: Script, key: str, *args: str) -> ScriptCall:
    return ScriptCall(script, (key.encode(),), tuple(arg.encode() for arg in args))


@contextlib.asynccontextmanager
async def transport_to(url: str) -> AsyncIterator[Transport]:
    connection = Connection(RedisSettings.from_url(url))
    await connection.open()
    try:
        yield Transport(connection)
    finally:
        await connection.aclose()


@pytest.fixture
async def transport(redis_server: RedisServer) -> AsyncIterator[Transport]:
    async with transport_to(redis_server.url) as opened:
        yield opened


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server the test may break; it keeps its data across restarts."""
    with RedisServer([("appendonly", "yes"), ("appendfsync", "always")]) as server:
        yield server


async def meets_trouble(logs: list[Any]) -> None:
    """Wait until the transport has met the outage that the test has arranged."""

    async def noticed():
        return any(entry["event"] == "redis in trouble" for entry in logs)

    await eventually(noticed)


# -- calls and replies ------------------------------------------------------------------------------------


async def test_replies_are_raw_and_in_order(transport: Transport, tenant: str):
    assert await transport.run() == []
    await transport.run(call(PUSH, f"{tenant}:other", "a"), call(APPEND, f"{tenant}:other", "a"))  # known from now on
    assert await transport.run(call(PUSH, tenant, "a")) == [[b"a"]]
    replies = await transport.run(call(PUSH, tenant, "b"), call(APPEND, tenant, "c"), call(PUSH, tenant, "d"))
    assert replies == [[b"a", b"b"], 3, [b"a", b"b", b"c", b"d"]]


async def test_all_calls_go_in_one_round_trip(transport: Transport, redis_server: RedisServer, tenant: str):
    calls = [call(APPEND, tenant, str(number)) for number in range(10)]
    await transport.run(*calls)  # Redis knows the script now
    with redis_server.client() as client:
        before = client.info("stats")["total_reads_processed"]
        await transport.run(*calls)
        reads = client.info("stats")["total_reads_processed"] - before
    assert reads <= 3  # ours, the measurement itself, and perhaps one that the network cut in two


async def test_execute_returns_raw_replies(transport: Transport, tenant: str):
    assert await transport.execute("SADD", tenant, b"x\xff") == 1
    assert await transport.execute("SMEMBERS", tenant) == [b"x\xff"]
    assert await transport.execute(b"EXISTS", tenant.encode()) == 1
    assert await transport.execute("GET", f"{tenant}:none") is None


async def test_large_arguments(transport: Transport, tenant: str):
    value = "v" * 5_000_000
    assert await transport.run(call(PUT, tenant, value), call(READ, tenant)) == [value.encode(), value.encode()]


async def test_many_at_once(transport: Transport, tenant: str):
    replies = await asyncio.gather(*(transport.run(call(PUT, f"{tenant}:{n}", str(n))) for n in range(500)))
    assert replies == [[str(number).encode()] for number in range(500)]


# -- scripts that Redis does not know ---------------------------------------------------------------------


async def test_script_flush_between_calls(own_server: RedisServer, tenant: str):
    async with transport_to(own_server.url) as transport:
        for number in range(3):
            with own_server.client() as client:
                client.script_flush()
            assert await transport.run(call(APPEND, tenant, "x"), patience_s=0.0) == [number + 1]
            with own_server.client() as client:
                assert client.script_exists(APPEND.sha) == [True]


async def test_a_known_script_is_sent_by_its_digest_only(own_server: RedisServer, tenant: str):
    async with transport_to(own_server.url) as transport:
        for _ in range(3):
            await transport.run(call(APPEND, tenant, "x"))
    with own_server.client() as client:
        stats = client.info("commandstats")
    assert stats["cmdstat_eval"]["calls"] == 1
    assert stats["cmdstat_evalsha"]["calls"] == 3


async def test_only_the_calls_that_did_not_run_are_sent_again(own_server: RedisServer, tenant: str):
    """Put is unknown and append is known: put runs afterwards, append exactly once, replies in their places."""
    async with transport_to(own_server.url) as transport:
        await transport.run(call(APPEND, f"{tenant}:list", "first"))
        with own_server.client() as client:
            client.script_flush()
            client.script_load(APPEND.source)
        replies = await transport.run(
            call(PUT, tenant, "one"),
            call(APPEND, f"{tenant}:list", "second"),
            call(READ, tenant),
            call(APPEND, f"{tenant}:list", "third"),
        )
        assert replies == [b"one", 2, b"one", 3]
        assert await transport.execute("LRANGE", f"{tenant}:list", 0, -1) == [b"first", b"second", b"third"]


# -- errors for good --------------------------------------------------------------------------------------


async def test_an_error_of_the_script_is_a_backend_error(transport: Transport, tenant: str):
    with pytest.raises(BackendError) as caught:
        await transport.run(call(BROKEN, tenant, "x"))
    assert not isinstance(caught.value, BackendUnavailable)
    assert isinstance(caught.value.__cause__, redis.ResponseError)
    await transport.execute("SET", tenant, "text")
    with pytest.raises(BackendError, match="WRONGTYPE"):
        await transport.execute("LPUSH", tenant, "x")


async def test_an_error_does_not_stop_the_calls_behind_it(transport: Transport, tenant: str):
    with pytest.raises(BackendError) as caught:
        await transport.run(call(PUT, tenant, "a"), call(BROKEN, tenant, "x"), call(PUT, tenant, "b"))
    assert isinstance(caught.value.__cause__, redis.ResponseError)
    assert await transport.execute("GET", tenant) == b"b"


async def test_out_of_memory_is_told_at_once(tenant: str):
    with RedisServer([("maxmemory-policy", "noeviction")]) as server:
        async with transport_to(server.url) as transport:
            await transport.run(call(PUT, tenant, "fits"))
            with server.client() as client:
                client.config_set("maxmemory", "1mb")
            with capture_logs() as logs, pytest.raises(OutOfMemory, match="the task was not stored") as caught:
                await transport.run(call(PUT, tenant, "does not fit"), patience_s=PATIENT_S)
            assert logs == []  # not tried again
            assert isinstance(caught.value.__cause__, redis.exceptions.OutOfMemoryError)
            assert await transport.run(call(READ, tenant)) == [b"fits"]


# -- outages that pass ------------------------------------------------------------------------------------


async def test_no_patience_means_one_try(tenant: str):
    port = free_port()
    connection = Connection(RedisSettings.from_url(f"redis://user:s3cr3t@127.0.0.1:{port}/0"))
    with pytest.raises(BackendUnavailable) as caught:
        await Transport(connection).run(call(PUT, tenant, "x"), patience_s=0.0)
    assert f"redis://user@127.0.0.1:{port}/0 is unavailable" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert isinstance(caught.value.__cause__, redis.ConnectionError)
    await connection.aclose()


async def test_patience_comes_to_an_end(tenant: str):
    connection = Connection(RedisSettings.from_url(f"redis://127.0.0.1:{free_port()}/0"))
    transport = Transport(connection)
    with pytest.raises(BackendUnavailable):
        await transport.run(call(PUT, tenant, "x"), patience_s=0.3)
    with pytest.raises(BackendUnavailable):
        await transport.execute("GET", tenant, patience_s=0.3)
    await connection.aclose()


async def test_restart_between_calls(own_server: RedisServer, tenant: str):
    async with transport_to(own_server.url) as transport:
        assert await transport.run(call(APPEND, tenant, "x")) == [1]
        own_server.restart()
        assert await transport.run(call(APPEND, tenant, "x"), patience_s=PATIENT_S) == [2]


async def test_a_connection_that_the_server_closed_costs_no_try(own_server: RedisServer, tenant: str):
    async with transport_to(own_server.url) as transport:
        await transport.run(call(APPEND, tenant, "x"))
        with own_server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

        async def all_closed():
            with own_server.client() as client:
                return len(client.client_list()) == 1

        await eventually(all_closed)
        for _ in range(3):
            await asyncio.sleep(0)  # the event loop learns that the connections are closed
        assert await transport.run(call(APPEND, tenant, "x"), patience_s=0.0) == [2]


async def test_kill_and_recover_in_the_middle_of_traffic(own_server: RedisServer, tenant: str):
    """Idempotent writes go on through a crash; each of them is there afterwards."""
    async with transport_to(own_server.url) as transport:
        confirmed: list[int] = []
        under_way = asyncio.Event()

        async def write(worker: int) -> None:
            for step in range(50):
                number = worker * 50 + step
                await transport.run(call(PUT, f"{tenant}:{number}", str(number)), patience_s=PATIENT_S)
                confirmed.append(number)
                if len(confirmed) == 50:
                    under_way.set()

        with capture_logs() as logs:
            writers = [asyncio.create_task(write(worker)) for worker in range(10)]
            await under_way.wait()
            await asyncio.to_thread(own_server.kill)
            await meets_trouble(logs)
            await asyncio.to_thread(own_server.start)
            await asyncio.gather(*writers)
        assert sorted(confirmed) == list(range(500))
        values = await asyncio.gather(*(transport.execute("GET", f"{tenant}:{number}") for number in range(500)))
        assert values == [str(number).encode() for number in range(500)]
        events = [entry["event"] for entry in logs]
        assert (events[0], events[-1]) == ("redis in trouble", "redis is back")
        assert len(events) < 20  # told once per change, not once per call


async def test_a_server_that_hangs_is_given_up_after_the_command_timeout(own_server: RedisServer, tenant: str):
    async with transport_to(f"{own_server.url}?command_timeout_s=0.2&pool_size=1") as transport:
        await transport.run(call(APPEND, tenant, "x"))
        own_server.pause()
        with pytest.raises(BackendUnavailable, match=r"no answer within 0.2 s"):
            await transport.run(call(PUT, f"{tenant}:p", "x"), patience_s=0.0)
        own_server.unpause()
        # The late answer is not taken for this one's.
        assert await transport.run(call(APPEND, tenant, "x"), patience_s=PATIENT_S) == [2]


async def test_demoted_server(own_server: RedisServer, tenant: str):
    async with transport_to(own_server.url) as transport:
        await transport.run(call(PUT, tenant, "before"))
        with own_server.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", free_port())
        with pytest.raises(BackendUnavailable, match="read only") as caught:
            await transport.run(call(PUT, tenant, "refused"), patience_s=0.0)
        assert isinstance(caught.value.__cause__, redis.exceptions.ReadOnlyError)
        assert await transport.run(call(READ, tenant)) == [b"before"]
        with capture_logs() as logs:
            waiting = asyncio.create_task(
                transport.run(call(READ, tenant), call(PUT, tenant, "after"), patience_s=PATIENT_S)
            )
            await meets_trouble(logs)
            with own_server.client() as client:
                client.execute_command("REPLICAOF", "NO", "ONE")
            assert await waiting == [b"before", b"after"]


async def test_demoted_server_is_left_for_whoever_has_its_address_now(tenant: str):
    """READONLY closes the idle connections: only a new one finds out that the name leads elsewhere."""
    old = RedisServer().start()
    async with transport_to(f"{old.url}?pool_size=4") as transport:
        with old.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", free_port())
            ids_before = {entry["id"] for entry in client.client_list()}
        with pytest.raises(BackendUnavailable):
            await transport.run(call(PUT, tenant, "x"), patience_s=0.0)

        async def idle_ones_gone():
            with old.client() as client:
                ids = {entry["id"] for entry in client.client_list()}
            return not ids & ids_before

        await eventually(idle_ones_gone)
    old.close()


async def test_loading_server(tenant: str):
    slow_start = [("key-load-delay", "10000"), ("loading-process-events-interval-bytes", "1024")]
    with RedisServer(slow_start) as server:
        with server.client() as client:
            for number in range(300):
                client.set(f"filler:{number}", "x" * 2048)
            client.set(tenant, "kept")
            client.save()
        server.kill()
        server.start_without_waiting()
        with server.client() as client:
            wait_until(lambda: _is_loading(client))
        async with transport_to(server.url) as transport:  # INFO and CONFIG are answered while loading
            with pytest.raises(BackendUnavailable, match="loading"):
                await transport.run(call(READ, tenant), patience_s=0.0)
            assert await transport.run(call(READ, tenant), patience_s=PATIENT_S) == [b"kept"]


def _is_loading(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.exceptions.BusyLoadingError:
        return True
    except redis.ConnectionError:
        return False
    raise AssertionError("the server has loaded its data too fast for this test")


async def test_missing_replicas(own_server: RedisServer, tenant: str):
    async with transport_to(own_server.url) as transport:
        with own_server.client() as client:
            client.config_set("min-replicas-to-write", 1)
        with pytest.raises(BackendUnavailable, match="NOREPLICAS"):
            await transport.run(call(PUT, tenant, "x"), patience_s=0.0)
        with own_server.client() as client:
            client.config_set("min-replicas-to-write", 0)
        assert await transport.run(call(PUT, tenant, "x")) == [b"x"]


# -- Sentinel ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet() as running:
        yield running


async def test_sentinel_switch_over(sentinels: SentinelSet, tenant: str):
    async with transport_to(sentinels.url) as transport:
        await transport.run(call(PUT, tenant, "before"))
        new = await asyncio.to_thread(sentinels.failover)
        assert await transport.run(call(PUT, tenant, "after"), patience_s=PATIENT_S) == [b"after"]
        with new.client() as client:
            assert client.get(tenant) == b"after"


async def test_sentinel_failover_after_a_crash(sentinels: SentinelSet, tenant: str):
    async with transport_to(sentinels.url) as transport:
        await transport.run(call(PUT, tenant, "before"))
        old = await asyncio.to_thread(sentinels.kill_primary)
        try:
            # No waiting for the failover here: the transport lives through it.
            assert await transport.run(call(PUT, tenant, "after"), patience_s=PATIENT_S) == [b"after"]
            new = await asyncio.to_thread(sentinels.wait_for_other_primary, old)
            with new.client() as client:
                assert client.get(tenant) == b"after"
        finally:
            old.start()
            sentinels.wait_until_settled()


# -- Cluster ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterServers]:
    with RedisClusterServers() as running:
        yield running


def tagged(tenant: str, number: int, rest: str = "x") -> str:
    return f"hr:{{{tenant}/{number}}}:{rest}"


async def test_cluster_runs_scripts_on_the_right_nodes(cluster: RedisClusterServers, tenant: str):
    async with transport_to(cluster.url) as transport:
        for number in range(30):
            key, other = tagged(tenant, number), tagged(tenant, number, "y")
            assert await transport.run(call(PUT, key, str(number)), call(APPEND, other, "a"), call(READ, key)) == [
                str(number).encode(),
                1,
                str(number).encode(),
            ]
            assert await transport.execute("GET", key) == str(number).encode()
        owners = {cluster.primary_of(tagged(tenant, number)).port for number in range(30)}
        assert len(owners) == 3


async def test_cluster_switch_over(cluster: RedisClusterServers, tenant: str):
    key = tagged(tenant, 1)
    async with transport_to(cluster.url) as transport:
        await transport.run(call(APPEND, key, "a"))
        old = cluster.primary_of(key)
        new = await asyncio.to_thread(cluster.failover, key)
        # One try: the old owner answers MOVED, and the transport follows.
        assert await transport.run(call(APPEND, key, "b"), call(PUSH, key, "c"), patience_s=0.0) == [
            2,
            [b"a", b"b", b"c"],
        ]
        with new.client() as client:
            assert client.lrange(key, 0, -1) == [b"a", b"b", b"c"]
        with old.client() as client:
            redirects = client.info("errorstats")["errorstat_MOVED"]
            await transport.run(call(APPEND, key, "d"))
            assert client.info("errorstats")["errorstat_MOVED"] == redirects  # it has learnt the way


async def test_cluster_failover_after_a_crash(cluster: RedisClusterServers, tenant: str):
    key = tagged(tenant, 1)
    async with transport_to(cluster.url) as transport:
        await transport.run(call(PUT, key, "before"))
        old = await asyncio.to_thread(cluster.kill_primary, key)
        try:
            assert await transport.run(call(PUT, key, "after"), patience_s=PATIENT_S) == [b"after"]
            new = await asyncio.to_thread(cluster.wait_for_other_primary, key, old)
            with new.client() as client:
                assert client.get(key) == b"after"
        finally:
            old.start()


async def test_cluster_slot_on_the_move(cluster: RedisClusterServers, tenant: str):
    """While a slot migrates, keys that are no longer at its owner are answered with ASK."""
    key = tagged(tenant, 1)
    source = cluster.primary_of(key)
    target = next(
        cluster.primary_of(other)
        for other in (tagged(tenant, number) for number in range(2, 1000))
        if cluster.primary_of(other) is not source
    )
    async with transport_to(cluster.url) as transport:
        # Several idle connections per node: ASKING must go over the one that carries the command.
        await asyncio.gather(*(transport.execute("GET", tagged(tenant, number)) for number in range(100)))
        with source.client() as at_source, target.client() as at_target:
            slot = at_source.execute_command("CLUSTER KEYSLOT", key)
            source_id, target_id = at_source.execute_command("CLUSTER MYID"), at_target.execute_command("CLUSTER MYID")
            at_target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
            at_source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            try:
                replies = await transport.run(call(PUT, key, "moved"), call(READ, key), patience_s=0.0)
                assert replies == [b"moved", b"moved"]
                assert await transport.execute("GET", key, patience_s=0.0) == b"moved"
                with pytest.raises(redis.exceptions.AskError):  # so the source was really asked around
                    at_source.get(key)
            finally:
                for client in (at_target, at_source):
                    client.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
        # The move is over; the map of this client is not up to date, and MOVED says so.
        assert await transport.run(call(READ, key), patience_s=0.0) == [b"moved"]


async def test_cluster_url_is_asked_for_when_a_node_says_moved(cluster: RedisClusterServers, tenant: str):
    key = tagged(tenant, 1)
    wrong = next(server for server in cluster.servers if server is not cluster.primary_of(key))
    async with transport_to(f"redis://{wrong.address}/0") as transport:
        with capture_logs() as logs, pytest.raises(BackendError, match=r"use redis\+cluster://"):
            await transport.run(call(PUT, key, "x"), patience_s=PATIENT_S)
        assert logs == []  # not tried again: that would not help
