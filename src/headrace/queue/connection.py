"""The connections to Redis: one server, Sentinel or Cluster behind the same few methods.

The driver's own retries are switched off everywhere. The transport retries, with a bound the caller chooses;
two layers of retries would multiply each other. A ``Connection`` belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import hiredis
import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from headrace.model.errors import (
    BackendError,
    BackendUnavailable,
    HeadraceError,
    OutOfMemory,
    PoolExhausted,
    UnsafeBackend,
)

from .settings import RedisSettings

Client: TypeAlias = Redis | RedisCluster
Word: TypeAlias = bytes | str | int | float
Route: TypeAlias = bytes | tuple[Word, ...] | None

DRIVER_ERRORS: Final = (RedisError, RedisClusterException, OSError)
"""What can come out of the driver when Redis or the way to it is at fault."""

OLDEST_VERSION: Final = (7, 0)
_PUBSUB_HEALTH_CHECK_S: Final = 15.0
_MAX_REDIRECTS: Final = 5
# The cluster client needs a connection of its own now and then, to ask for the slot map.
_SPARE_NODE_CONNECTIONS: Final = 2
# Error replies the driver has no class for. All of them pass by themselves or with an operator's help.
_TRANSIENT_CODES: Final = ("NOREPLICAS", "MISCONF", "BUSY")

_log = structlog.get_logger(__name__)


def pack(*words: Word) -> bytes:
    """A command as it goes over the wire; packed in C, because the cost per argument is what counts."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub has one-word commands only
    return packed


_ASKING: Final = pack("ASKING")


class Connection:
    """Everything that talks to one Redis installation, opened and closed together."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self._sentinel = _sentinel(settings) if settings.mode == "sentinel" else None
        self._lane: _Lane
        if settings.mode == "cluster":
            cluster = _cluster_client(settings, settings.pool_size, settings.command_timeout_s)
            self.commands: Client = cluster
            self._lane = _ClusterLane(cluster, settings)
        else:
            pool = self._pool(settings.pool_size, settings.command_timeout_s)
            self.commands = Redis.from_pool(pool)
            self._lane = _PoolLane(pool, settings)
        self._made: list[Client] = [self.commands]
        self._pubsub_clients: dict[tuple[str, int] | None, Redis] = {}
        self._opening = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Check the server and open half of the pool in advance; does nothing when it is open already.

        Raises ``UnsafeBackend`` on a server that could lose tasks. After a failure it can be called again.
        """
        async with self._opening:
            if self._is_open:
                return
            try:
                for server, answers in (await self._lane.ask_primaries(_CHECK)).items():
                    _check_server(server, answers, self.settings)
                await self._lane.warm_up(self.settings.pool_size // 2)
            except DRIVER_ERRORS as error:
                raise as_backend_error(error, self.settings) from error
            self._is_open = True

    async def aclose(self) -> None:
        """Close every connection of every client made here. It can be opened again afterwards."""
        self._is_open = False
        for client in self._made:
            await client.aclose()
        if self._sentinel is not None:
            await self._sentinel.aclose()
        await self._lane.rediscover()

    def blocking(self, block_s: float, connections: int = 1) -> Client:
        """A client of its own for blocking commands of up to ``block_s`` (0: without end).

        A blocked command holds its connection, so it must not come from the pool of the scripts; and its
        socket must be patient for longer than the command blocks.
        """
        timeout_s = block_s + self.settings.command_timeout_s if block_s > 0 else None
        client: Client
        if self.settings.mode == "cluster":
            client = _cluster_client(self.settings, connections, timeout_s)
        else:
            client = Redis.from_pool(self._pool(connections, timeout_s))
        self._made.append(client)
        return client

    def pubsub_client(self) -> Redis:
        """A client for subscriptions; each subscription takes a connection of its own from it.

        In a cluster every node carries every message, so this is a plain client of some node: another one
        at each call, so that asking again after trouble gets away from a node that is gone.
        """
        place = self._some_node() if self.settings.mode == "cluster" else None
        client = self._pubsub_clients.get(place)
        if client is None:
            options = _socket_options(self.settings, self.settings.command_timeout_s)
            options["health_check_interval"] = _PUBSUB_HEALTH_CHECK_S
            if place is None:
                pool = self._raw_pool(options)
            else:
                kind = SSLConnection if self.settings.tls else TcpConnection
                pool = ConnectionPool(connection_class=kind, host=place[0], port=place[1], **options)
            client = self._pubsub_clients[place] = Redis.from_pool(pool)
            self._made.append(client)
        return client

    async def exchange(self, payloads: Sequence[bytes], answers: list[Any], route: Route) -> None:
        """Send packed commands in one round trip and append their raw answers, error replies included.

        When the connection breaks this raises, and ``answers`` holds those that had come in. In a cluster
        ``route`` says which node is meant: a key, or a command to find the key in; None is any primary.
        """
        await self._lane.exchange(payloads, answers, route)

    async def rediscover(self) -> None:
        """Forget who the primary is, so that the next command finds out anew."""
        await self._lane.rediscover()

    # -- making pools ---------------------------------------------------------------------------------

    def _pool(self, size: int, timeout_s: float | None) -> _BoundedPool:
        options = _socket_options(self.settings, timeout_s)
        bound = {"max_connections": size, "wait_s": self.settings.pool_wait_s}
        if self._sentinel is not None:
            kind = SentinelManagedSSLConnection if self.settings.tls else SentinelManagedConnection
            return _BoundedSentinelPool(
                self.settings.sentinel_service, self._sentinel, connection_class=kind, **bound, **options
            )
        return _BoundedPool(**_place(self.settings), **bound, **options)

    def _raw_pool(self, options: dict[str, Any]) -> ConnectionPool:
        """A pool without a bound: the number of subscriptions is the program's own choice."""
        if self._sentinel is not None:
            kind = SentinelManagedSSLConnection if self.settings.tls else SentinelManagedConnection
            service = self.settings.sentinel_service
            return SentinelConnectionPool(  # type: ignore[no-untyped-call]
                service, self._sentinel, connection_class=kind, **options
            )
        return ConnectionPool(**_place(self.settings), **options)

    def _some_node(self) -> tuple[str, int]:
        assert isinstance(self.commands, RedisCluster)
        nodes = [(str(node.host), int(node.port)) for node in self.commands.get_nodes()]
        return random.choice(nodes or list(self.settings.hosts))


# -- what went wrong ------------------------------------------------------------------------------------


def is_transient(error: BaseException, settings: RedisSettings) -> bool:
    """Whether trying again later can help: no connection, no primary, or a server that is not ready."""
    if isinstance(error, AskError):  # MOVED as well
        return settings.mode == "cluster"
    if isinstance(error, AuthenticationError | AuthorizationError) or _is_login_refused(error):
        return False
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError | ClusterError | RedisClusterException):
        return True
    if isinstance(error, ReadOnlyError | TryAgainError):
        return True
    return isinstance(error, ResponseError) and str(error).partition(" ")[0] in _TRANSIENT_CODES


def as_backend_error(error: Exception, settings: RedisSettings) -> HeadraceError:
    """The error in Headrace's own terms; chain the driver's error to it with ``from``."""
    if isinstance(error, HeadraceError):
        return error
    server = settings.describe()
    if isinstance(error, OutOfMemoryError):
        return OutOfMemory(
            f"{server}: Redis has reached maxmemory; the task was not stored; "
            "raise maxmemory, or purge finished and dead tasks"
        )
    if isinstance(error, AuthenticationError | AuthorizationError) or _is_login_refused(error):
        return BackendError(f"{server}: Redis refused the login; check user name and password ({error})")
    if isinstance(error, MovedError) and settings.mode != "cluster":
        return BackendError(f"{server} is a node of a Redis Cluster; use redis+cluster:// in the URL ({error})")
    if is_transient(error, settings):
        return BackendUnavailable(f"{server} is unavailable: {str(error) or type(error).__name__}")
    return BackendError(f"{server}: {error}")


def _is_login_refused(error: BaseException) -> bool:
    # The cluster client wraps whatever its last node said.
    return isinstance(error, RedisClusterException) and isinstance(error.__cause__, AuthenticationError)


# -- lanes: how commands get to the right server ----------------------------------------------------------


class _Lane(Protocol):
    async def exchange(self, payloads: Sequence[bytes], answers: list[Any], route: Route) -> None: ...
    async def rediscover(self) -> None: ...
    async def ask_primaries(self, payloads: Sequence[bytes]) -> Mapping[str, list[Any]]: ...
    async def warm_up(self, connections: int) -> None: ...


class _PoolLane:
    """One primary, found by its address or through Sentinel."""

    def __init__(self, pool: _BoundedPool, settings: RedisSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._timeout_s = settings.command_timeout_s

    async def exchange(self, payloads: Sequence[bytes], answers: list[Any], route: Route) -> None:
        connection = await self._pool.get_connection()
        try:
            await _converse(connection, payloads, answers, self._timeout_s)
        finally:
            await self._pool.release(connection)

    async def rediscover(self) -> None:
        # A name that now leads to another server is only looked up by a new connection, and Sentinel is
        # only asked by one. Connections in use meet the same error and come back here.
        await self._pool.disconnect(inuse_connections=False)

    async def ask_primaries(self, payloads: Sequence[bytes]) -> Mapping[str, list[Any]]:
        answers: list[Any] = []
        await self.exchange(payloads, answers, None)
        return {self._settings.describe(): answers}

    async def warm_up(self, connections: int) -> None:
        opening = [self._pool.get_connection() for _ in range(connections)]
        opened = await asyncio.gather(*opening, return_exceptions=True)
        errors = [outcome for outcome in opened if isinstance(outcome, BaseException)]
        for outcome in opened:
            if not isinstance(outcome, BaseException):
                await self._pool.release(outcome)
        if errors:
            raise errors[0]


class _ClusterLane:
    """The primary that owns a key's slot.

    The driver's cluster client keeps the slot map and the connections of each node. Sending is done here,
    because its pipeline sends ASKING and the command it is meant for over different connections, and because
    it does not wait for a free connection.
    """

    def __init__(self, client: RedisCluster, settings: RedisSettings) -> None:
        self._client = client
        self._settings = settings
        self._seats: dict[str, asyncio.Semaphore] = {}
        self._map_is_stale = True
        self._failed_node: str | None = None

    async def exchange(self, payloads: Sequence[bytes], answers: list[Any], route: Route) -> None:
        await self._refresh_map()
        await self._ask(await self._node_for(route), payloads, answers)
        for position, answer in enumerate(answers):
            if isinstance(answer, AskError):  # MOVED as well
                answers[position] = await self._follow(answer, payloads[position])

    async def rediscover(self) -> None:
        self._map_is_stale = True

    async def ask_primaries(self, payloads: Sequence[bytes]) -> Mapping[str, list[Any]]:
        await self._refresh_map()
        answers: dict[str, list[Any]] = {node.name: [] for node in self._client.get_primaries()}
        for node in self._client.get_primaries():
            await self._ask(node, payloads, answers[node.name])
        return answers

    async def warm_up(self, connections: int) -> None:
        """Nothing in advance: which node the queues of this process live on shows with the first commands."""

    async def _refresh_map(self) -> None:
        if not self._map_is_stale:
            return
        await self._client.initialize()  # does something the first time and after aclose() only
        await self._client.nodes_manager.initialize(last_failed_node_name=self._failed_node)
        self._map_is_stale = False

    async def _node_for(self, route: Route) -> ClusterNode:
        key: Any = route
        if isinstance(route, tuple):
            name, *arguments = route
            keys = await self._client.commands_parser.get_keys(_as_text(name), *arguments)
            key = keys[0] if keys else None
        node = None if key is None else self._client.get_node_from_key(key)
        return node or self._client.get_random_primary_node()

    async def _follow(self, redirect: AskError, payload: bytes) -> Any:
        """Go after one command that belongs to another node; gives up with the last redirect as the answer."""
        answer: Any = redirect
        for _ in range(_MAX_REDIRECTS):
            if not isinstance(answer, AskError):
                break
            if isinstance(answer, MovedError):
                await self._client.nodes_manager.move_slot(answer)
                sent = [payload]
            else:
                sent = [_ASKING, payload]  # on one connection: ASKING is good for the next command only
            answers: list[Any] = []
            await self._ask(self._node(answer.host, answer.port), sent, answers)
            answer = answers[-1]
        return answer

    def _node(self, host: str, port: int) -> ClusterNode:
        manager = self._client.nodes_manager
        node = manager.get_node(host=host, port=port)
        if node is None:  # new in the cluster: it imports its first slot right now
            options: dict[str, Any] = self._client.get_connection_kwargs()
            node = ClusterNode(host, port, "primary", **options)
            manager.set_nodes(manager.nodes_cache, {node.name: node})
        return node

    async def _ask(self, node: ClusterNode, payloads: Sequence[bytes], answers: list[Any]) -> None:
        seats = self._seats.setdefault(node.name, asyncio.Semaphore(self._settings.pool_size))
        await _take_seat(seats, self._settings.pool_size, self._settings.pool_wait_s)
        try:
            connection = node.acquire_connection()
            try:
                await node.disconnect_if_needed(connection)
                if connection.is_connected and await connection.can_read():
                    await connection.disconnect(nowait=True)  # the server hung up while it lay idle
                await _converse(connection, payloads, answers, self._settings.command_timeout_s)
            finally:
                node.release(connection)
        except (RedisConnectionError, RedisTimeoutError):
            self._map_is_stale, self._failed_node = True, node.name
            raise
        finally:
            seats.release()


async def _converse(
    connection: AbstractConnection, payloads: Sequence[bytes], answers: list[Any], timeout_s: float
) -> None:
    """Send everything, then read one answer for each; error replies are answers too."""
    # One timer around the whole exchange instead of the driver's own: it starts a timer per answer and,
    # before Python 3.12, a task per send, which costs more than packing the arguments.
    configured_s, connection.socket_timeout = connection.socket_timeout, None
    try:
        async with asyncio.timeout(timeout_s):
            await connection.send_packed_command(payloads)
            for _ in payloads:
                try:
                    answers.append(await connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    answers.append(error)
    except TimeoutError:
        # The driver has closed the connection: nobody reads the late answer as the answer to something else.
        raise RedisTimeoutError(f"no answer within {timeout_s:g} s") from None
    finally:
        connection.socket_timeout = configured_s


# -- pools ------------------------------------------------------------------------------------------------


class _BoundedPool(ConnectionPool):
    """A pool that never exceeds its size and says so when nobody gave a connection back in time."""

    def __init__(self, *args: Any, wait_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._wait_s = wait_s
        self._seats = asyncio.Semaphore(self.max_connections)

    async def get_connection(self, command_name: str | None = None, *keys: Any, **options: Any) -> AbstractConnection:
        await _take_seat(self._seats, self.max_connections, self._wait_s)
        connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call]
        try:
            # Connected and quiet is the usual case, and all that the driver's own check would find out.
            if not connection.is_connected or await connection.can_read():
                await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        # Nothing is awaited before the seat is free: a cancelled task always gives its connection back.
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)
        self._seats.release()

    async def disconnect(self, inuse_connections: bool = True) -> None:
        if inuse_connections:
            await super().disconnect()
            return
        # Without waiting for the sockets to be closed: while the driver waits, another task can take such
        # a connection and reconnect it, only to have it torn down.
        for connection in list(self._available_connections):
            await connection.disconnect(nowait=True)


class _BoundedSentinelPool(_BoundedPool, SentinelConnectionPool):
    """The same for the primary that Sentinel names."""


async def _take_seat(seats: asyncio.Semaphore, size: int, wait_s: float) -> None:
    if not seats.locked():
        await seats.acquire()  # at once, and without the cost of a timer
        return
    try:
        async with asyncio.timeout(wait_s):
            await seats.acquire()
    except TimeoutError:
        raise PoolExhausted(
            f"all {size} connections were busy for {wait_s:g} s; raise pool_size "
            "(in the URL: ?pool_size=…) or start fewer operations at once"
        ) from None


# -- options for the driver -------------------------------------------------------------------------------


def _socket_options(settings: RedisSettings, timeout_s: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": settings.username,
        "password": settings.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "protocol": 2,  # replies keep one shape whatever the server can do
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.mode != "cluster":
        options["db"] = settings.db
    if settings.unix_socket is None:
        options["socket_keepalive"] = True
    return options | _tls_options(settings)


def _tls_options(settings: RedisSettings) -> dict[str, Any]:
    if not settings.tls:
        return {}
    return {
        "ssl_cert_reqs": "required",
        "ssl_ca_certs": settings.tls_ca_file,
        "ssl_certfile": settings.tls_cert_file,
        "ssl_keyfile": settings.tls_key_file,
        "ssl_check_hostname": settings.tls_check_hostname,
    }


def _place(settings: RedisSettings) -> dict[str, Any]:
    if settings.unix_socket is not None:
        return {"connection_class": UnixDomainSocketConnection, "path": settings.unix_socket}
    host, port = settings.hosts[0]
    return {"connection_class": SSLConnection if settings.tls else TcpConnection, "host": host, "port": port}


def _sentinel(settings: RedisSettings) -> Sentinel:
    options: dict[str, Any] = {
        "username": settings.sentinel_username,
        "password": settings.sentinel_password,
        "socket_timeout": settings.connect_timeout_s,  # a sentinel that hangs must not stop us asking the next
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_keepalive": True,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "ssl": settings.tls,
    }
    options |= _tls_options(settings)
    return Sentinel(list(settings.hosts), sentinel_kwargs=options)  # type: ignore[no-untyped-call]


def _cluster_client(settings: RedisSettings, connections_per_node: int, timeout_s: float | None) -> RedisCluster:
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in settings.hosts],
        # A shard that is down must not stop the queues on the others.
        require_full_coverage=False,
        max_connections=connections_per_node + _SPARE_NODE_CONNECTIONS,
        ssl=settings.tls,
        **_socket_options(settings, timeout_s),
    )


# -- the server check -------------------------------------------------------------------------------------


_CHECK: Final = (pack("INFO", "server"), pack("CONFIG", "GET", "maxmemory-policy"), pack("INFO", "memory"))


def _check_server(server: str, answers: Sequence[Any], settings: RedisSettings) -> None:
    """Refuse a server that could lose tasks; warn where it could lose less, or cannot be asked."""
    about, config, memory = answers
    for answer in answers:
        if isinstance(answer, ResponseError) and is_transient(answer, settings):
            raise answer
    _check_version(server, _info(about).get("redis_version"))
    policy = _as_text(config[1]) if isinstance(config, list) and len(config) == 2 else None
    _check_policy(server, policy or _info(memory).get("maxmemory_policy"))


def _check_version(server: str, version: str | None) -> None:
    if version is None:
        _log.warning("redis version unreadable", server=server, needed=_dotted(OLDEST_VERSION))
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VERSION:
        raise UnsafeBackend(f"{server}: Redis is {version}; Headrace needs {_dotted(OLDEST_VERSION)} or newer")


def _check_policy(server: str, policy: str | None) -> None:
    if policy is None:
        _log.warning(
            "redis maxmemory-policy unreadable",
            server=server,
            advice="allow CONFIG GET or INFO, or make sure that it is noeviction",
        )
    elif policy.startswith("allkeys-"):
        raise UnsafeBackend(
            f"{server}: maxmemory-policy is {policy}: when memory runs out Redis would throw away waiting tasks; "
            "set maxmemory-policy to noeviction"
        )
    elif policy.startswith("volatile-"):
        _log.warning(
            "redis may evict idempotency keys",
            server=server,
            maxmemory_policy=policy,
            advice="set maxmemory-policy to noeviction",
        )


def _info(answer: Any) -> dict[str, str]:
    """The fields of an INFO answer; none when it was denied."""
    if not isinstance(answer, bytes):
        return {}
    lines = (line.partition(":") for line in answer.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
