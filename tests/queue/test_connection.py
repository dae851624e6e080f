"""Connections to real servers in every mode, and the check of the server they lead to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hiredis
import pytest
import redis
from structlog.testing import capture_logs

from headrace.model.errors import BackendError, BackendUnavailable, PoolExhausted, UnsafeBackend
from headrace.queue.connection import Connection
from headrace.queue.driver import Word, pack
from headrace.queue.lanes import Lane
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import Transport
from tests.support.cluster import RedisClusterServers
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SentinelSet
from tests.support.tls import make_tls_files
from tests.support.waiting import eventually


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = Connection(RedisSettings.from_url(url))
    try:
        await connection.open()
        yield connection
    finally:
        await connection.aclose()


async def round_trip(connection: Connection, key: str) -> None:
    """A value goes in over the scripts' pool and comes out over a blocking lane."""
    transport = Transport(connection)
    assert await transport.execute("RPUSH", key, "value") == 1
    blocking = connection.blocking(block_s=5.0)
    assert await say(blocking, "BLPOP", key, 5) == [key.encode(), b"value"]
    assert await say(blocking, "BLPOP", key, 0.05) is None


async def say(lane: Lane, name: str, *words: Word) -> Any:
    """One command over a lane; an error that it is answered with is raised."""
    answers: list[Any] = []
    await lane.exchange([pack(name, *words)], answers, (name, *words))
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


async def hears_a_message(connection: Connection, channel: str) -> None:
    pubsub = connection.pubsub_client().pubsub(ignore_subscribe_messages=True)
    try:
        await pubsub.subscribe(channel)
        transport = Transport(connection)

        async def heard():
            await transport.execute("PUBLISH", channel, "hello")
            return await pubsub.get_message(timeout=0.1)

        assert (await eventually(heard))["data"] == b"hello"
    finally:
        await pubsub.aclose()


# -- modes ------------------------------------------------------------------------------------------------


async def test_standalone(redis_server: RedisServer, tenant: str):
    async with connected(redis_server.url) as connection:
        await round_trip(connection, f"{tenant}:list")
        await hears_a_message(connection, f"{tenant}:channel")


async def test_database_number(redis_server: RedisServer, tenant: str):
    async with connected(redis_server.url.removesuffix("/0") + "/5") as connection:
        await Transport(connection).execute("SET", tenant, "here")
    with redis_server.client(db=5) as five, redis_server.client(db=0) as zero:
        assert five.get(tenant) == b"here"
        assert zero.get(tenant) is None


async def test_unix_socket(redis_server: RedisServer, tenant: str):
    async with connected(redis_server.unix_url) as connection:
        await round_trip(connection, f"{tenant}:list")


async def test_tls(tmp_path: Path, tenant: str):
    with RedisServer(tls=make_tls_files(tmp_path / "good"), password="pw") as server:
        async with connected(server.url) as connection:
            await round_trip(connection, f"{tenant}:list")
            await hears_a_message(connection, f"{tenant}:channel")
        stranger = make_tls_files(tmp_path / "stranger")
        with pytest.raises(BackendUnavailable, match="certificate verify failed"):
            async with connected(server.url.replace(str(tmp_path / "good"), str(tmp_path / "stranger"))):
                pass
        assert stranger.ca_file.exists()


async def test_tls_checks_the_host_name_unless_told_not_to(tmp_path: Path):
    with RedisServer(tls=make_tls_files(tmp_path, names=("127.0.0.1", "elsewhere.example"))) as server:
        by_name = server.url.replace("127.0.0.1", "localhost")
        with pytest.raises(BackendUnavailable, match=r"[Hh]ostname mismatch"):
            async with connected(by_name):
                pass
        async with connected(f"{by_name}&tls_check_hostname=false") as connection:
            assert await Transport(connection).execute("PING") == b"PONG"


async def test_tls_client_certificate(tmp_path: Path):
    files = make_tls_files(tmp_path)
    with RedisServer([("tls-auth-clients", "yes")], tls=files) as server:
        url = f"{server.url}&tls_cert_file={quote(str(files.cert_file))}&tls_key_file={quote(str(files.key_file))}"
        async with connected(url) as connection:
            assert await Transport(connection).execute("PING") == b"PONG"
        with pytest.raises(BackendUnavailable):
            async with connected(server.url):
                pass


async def test_acl_user(tenant: str):
    password = "p@ss:w/rd%?#&"
    rules = f"user worker on >{password} ~{tenant}:* &{tenant}:* +@all -@dangerous +info +config|get"
    with RedisServer([("user", rules.removeprefix("user ")), ("user", "default off")]) as server:
        login = f"redis://worker:{quote(password, safe='')}@{server.address}/0"
        async with connected(login) as connection:
            await round_trip(connection, f"{tenant}:list")
            with pytest.raises(BackendError, match="permission"):
                await Transport(connection).execute("GET", "someone-else")
        with pytest.raises(BackendError, match="refused the login") as caught:
            async with connected(f"redis://worker:wrong-word@{server.address}/0"):
                pass
        assert not isinstance(caught.value, BackendUnavailable)
        assert "wrong-word" not in str(caught.value)
        with pytest.raises(BackendError):
            async with connected(f"redis://{server.address}/0"):
                pass


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterServers]:
    with RedisClusterServers() as running:
        yield running


async def test_sentinel(sentinels: SentinelSet, tenant: str):
    async with connected(sentinels.url) as connection:
        await round_trip(connection, f"{tenant}:list")
        await hears_a_message(connection, f"{tenant}:channel")
        answer = await Transport(connection).execute("INFO", "server")
        assert f"tcp_port:{sentinels.primary.port}".encode() in answer


async def test_sentinel_without_such_a_service(sentinels: SentinelSet):
    url = sentinels.url.replace("/mymaster/", "/another/")
    with pytest.raises(BackendUnavailable, match="'another'"):
        async with connected(url):
            pass


async def test_sentinel_password_stays_out_of_errors():
    with pytest.raises(BackendError) as caught:
        async with connected("redis+sentinel://u:s3cr3t@127.0.0.1:1/m?sentinel_username=su&sentinel_password=s3cr3t"):
            pass
    assert "s3cr3t" not in str(caught.value)


async def test_blocking_client_follows_a_failover(sentinels: SentinelSet, tenant: str):
    async with connected(sentinels.url) as connection:
        blocking = connection.blocking(block_s=5.0)
        assert await say(blocking, "BLPOP", tenant, 0.05) is None
        sentinels.failover()

        async def woken():
            await Transport(connection).execute("RPUSH", tenant, "value", patience_s=30.0)
            try:
                return await say(blocking, "BLPOP", tenant, 1)
            except (redis.RedisError, OSError):
                return None  # the connection of before; the next call asks the sentinels

        assert await eventually(woken) == [tenant.encode(), b"value"]


async def test_cluster(cluster: RedisClusterServers, tenant: str):
    async with connected(cluster.url) as connection:
        for number in range(5):  # different slots
            await round_trip(connection, f"hr:{{{tenant}/{number}}}:list")
        await hears_a_message(connection, f"{tenant}:channel")


async def test_cluster_needs_one_reachable_node_only(cluster: RedisClusterServers, tenant: str):
    url = f"redis+cluster://127.0.0.1:1,{cluster.servers[0].address}"
    async with connected(url) as connection:
        assert await Transport(connection).execute("SET", tenant, "x") == b"OK"


async def test_cluster_url_for_a_single_server(redis_server: RedisServer):
    with pytest.raises(BackendError, match=r"[Cc]luster mode is not enabled"):
        async with connected(f"redis+cluster://{redis_server.address}"):
            pass


# -- the server check -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tuned() -> Iterator[RedisServer]:
    """A server whose settings the tests change."""
    rules = "checker on >pw ~* &* +@all"
    with RedisServer([("user", f"{rules} -config"), ("user", "blind on >pw ~* &* +@all -config -info")]) as server:
        yield server


def set_policy(server: RedisServer, policy: str) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", policy)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
@pytest.mark.parametrize("login", ["", "checker:pw@"])
async def test_refuses_a_server_that_evicts_tasks(tuned: RedisServer, policy: str, login: str):
    set_policy(tuned, policy)
    with pytest.raises(UnsafeBackend) as caught:
        async with connected(f"redis://{login}{tuned.address}/0"):
            pass
    assert f"maxmemory-policy is {policy}" in str(caught.value)
    assert "set maxmemory-policy to noeviction" in str(caught.value)


@pytest.mark.parametrize("login", ["", "checker:pw@"])
async def test_warns_about_volatile_policies(tuned: RedisServer, login: str):
    set_policy(tuned, "volatile-lru")
    with capture_logs() as logs:
        async with connected(f"redis://{login}{tuned.address}/0"):
            pass
    (entry,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert entry["event"] == "redis may evict idempotency keys"
    assert entry["maxmemory_policy"] == "volatile-lru"


async def test_is_silent_about_noeviction(tuned: RedisServer):
    set_policy(tuned, "noeviction")
    with capture_logs() as logs:
        async with connected(tuned.url):
            pass
    assert logs == []


async def test_warns_when_nothing_can_be_read(tuned: RedisServer):
    set_policy(tuned, "allkeys-lru")
    with capture_logs() as logs:
        async with connected(f"redis://blind:pw@{tuned.address}/0"):
            pass
    assert [entry["event"] for entry in logs] == [
        "redis version unreadable",
        "redis maxmemory-policy unreadable",
    ]


async def test_checks_every_primary_of_a_cluster(cluster: RedisClusterServers):
    server = cluster.primary_of("some key")
    set_policy(server, "allkeys-lru")
    try:
        with pytest.raises(UnsafeBackend, match=f":{server.port}: maxmemory-policy"):
            async with connected(cluster.url):
                pass
    finally:
        set_policy(server, "noeviction")


@dataclass
class OldServer:
    """Says that it is an old version. There is no old redis-server to install next to the current one."""

    version: str

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader(notEnoughData=...)
        while data := await reader.read(65536):
            commands.feed(data)
            while (command := commands.gets()) is not ...:
                info = f"redis_version:{self.version}\r\n".encode()
                writer.write(b"$%d\r\n%b\r\n" % (len(info), info) if command[0] == b"INFO" else b"-ERR unknown\r\n")
        writer.close()


@pytest.mark.parametrize(("version", "accepted"), [("6.2.14", False), ("7.0.0", True), ("10.1.0", True)])
async def test_version(version: str, accepted: bool):
    listener = await asyncio.start_server(OldServer(version).serve, "127.0.0.1", 0)
    async with listener:
        url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
        if accepted:
            async with connected(url):
                pass
        else:
            with pytest.raises(UnsafeBackend, match=r"Redis is 6\.2\.14; Headrace needs 7\.0 or newer"):
                async with connected(url):
                    pass


# -- opening and closing ----------------------------------------------------------------------------------


def clients_of(server: RedisServer) -> int:
    with server.client() as client:
        return len(client.client_list()) - 1


async def test_open_warms_half_of_the_pool_once_and_aclose_closes_everything():
    with RedisServer() as server:
        connection = Connection(RedisSettings.from_url(f"{server.url}?pool_size=10"))
        await asyncio.gather(*(connection.open() for _ in range(5)))
        await connection.open()
        assert clients_of(server) == 5
        await say(connection.blocking(block_s=1.0), "PING")
        await connection.pubsub_client().ping()
        assert clients_of(server) == 7
        await connection.aclose()
        await eventually(lambda: asyncio.to_thread(lambda: clients_of(server) == 0))
        await connection.open()
        assert await Transport(connection).execute("PING") == b"PONG"
        await connection.aclose()


async def test_open_works_after_the_server_was_down():
    server = RedisServer()
    connection = Connection(RedisSettings.from_url(server.url))
    try:
        with pytest.raises(BackendUnavailable, match=f"redis://127.0.0.1:{server.port}/0 is unavailable"):
            await connection.open()
        server.start()
        await connection.open()
        assert await Transport(connection).execute("PING") == b"PONG"
    finally:
        await connection.aclose()
        server.close()


# -- the bound of the pool --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["standalone", "cluster"])
async def test_says_that_the_pool_is_exhausted(mode: str, redis_server: RedisServer, request, tenant: str):
    if mode == "cluster":
        servers: RedisClusterServers = request.getfixturevalue("cluster")
        url, key = servers.url, tenant
    else:
        url, key = redis_server.url, tenant
    async with connected(f"{url}?pool_size=2&pool_wait_s=0.1") as connection:
        transport = Transport(connection)
        # BLPOP keeps its connection busy until the push below.
        held = [asyncio.create_task(transport.execute("BLPOP", key, 0, patience_s=0.0)) for _ in range(2)]
        spare = connection.blocking(block_s=1.0)

        async def both_blocked():
            replies = []
            await say(spare, "PING")
            with (servers.primary_of(key) if mode == "cluster" else redis_server).client() as client:
                replies = [c for c in client.client_list() if c["cmd"] == "blpop" and "b" in c["flags"]]
            return len(replies) >= 2

        await eventually(both_blocked)
        with pytest.raises(PoolExhausted, match=r"all 2 connections were busy for 0.1 s; raise pool_size"):
            await transport.execute("GET", key)
        await say(spare, "RPUSH", key, "a", "b")
        assert sorted(value for _, value in await asyncio.gather(*held)) == [b"a", b"b"]
        assert await transport.execute("GET", f"{key}:free") is None


async def test_a_waiting_command_gets_the_connection_that_becomes_free(redis_server: RedisServer, tenant: str):
    async with connected(f"{redis_server.url}?pool_size=1&pool_wait_s=30") as connection:
        transport = Transport(connection)
        held = asyncio.create_task(transport.execute("BLPOP", tenant, 0, patience_s=0.0))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(transport.execute("ECHO", str(number))) for number in range(20)]
        await say(connection.blocking(block_s=1.0), "RPUSH", tenant, "x")
        await held
        assert await asyncio.gather(*waiting) == [str(number).encode() for number in range(20)]


async def test_cancelled_waiters_leave_the_pool_whole(redis_server: RedisServer, tenant: str):
    async with connected(f"{redis_server.url}?pool_size=1&pool_wait_s=30") as connection:
        transport = Transport(connection)
        held = asyncio.create_task(transport.execute("BLPOP", tenant, 0, patience_s=0.0))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(transport.execute("ECHO", "x")) for _ in range(10)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await say(connection.blocking(block_s=1.0), "RPUSH", tenant, "x")
        await held
        assert await transport.execute("ECHO", "still here") == b"still here"


async def test_a_cancelled_command_does_not_leave_its_answer_behind(redis_server: RedisServer, tenant: str):
    async with connected(f"{redis_server.url}?pool_size=1") as connection:
        transport = Transport(connection)
        for number in range(50):
            task = asyncio.create_task(transport.execute("ECHO", f"cancelled {number}"))
            for _ in range(number % 7):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await transport.execute("ECHO", f"wanted {number}") == f"wanted {number}".encode()


def test_pack():
    assert pack("SET", b"k\x00", 1, 1.5) == b"*4\r\n$3\r\nSET\r\n$2\r\nk\x00\r\n$1\r\n1\r\n$3\r\n1.5\r\n"
