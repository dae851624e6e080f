"""How the driver is set up and what its words look like on the wire.

Here belongs whatever turns ``RedisSettings`` into the driver's own options and clients, and the packing of
commands. Nothing in here talks to a server; the other modules of the connection stand on this one.

The driver's own retries are switched off everywhere. The transport retries, with a bound the caller chooses;
two layers of retries would multiply each other.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import hiredis
from redis import __version__ as redis_version
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo

from .sentinels import Sentinels
from .settings import RedisSettings

Client: TypeAlias = Redis | RedisCluster
Word: TypeAlias = bytes | str | int | float

# The cluster client needs a connection of its own now and then, to ask for the slot map.
_SPARE_NODE_CONNECTIONS: Final = 2
# Left to itself, the driver looks its own version up in the installed package's metadata for each connection; for those
# that a worker opens at its start, this takes longer than connecting.
_DRIVER_INFO: Final = DriverInfo(lib_version=redis_version)


def pack(*words: Word) -> bytes:
    """A command as it goes over the wire; packed in C, because the cost per argument is what counts."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub has one-word commands only
    return packed


def as_text(value: Any) -> str:
    """A word of a command or of an answer, whichever of its two forms it has."""
    return value.decode() if isinstance(value, bytes) else str(value)


def socket_options(settings: RedisSettings, timeout_s: float | None) -> dict[str, Any]:
    """How a connection to a server logs in, and for how long its socket is patient (None: without end)."""
    options: dict[str, Any] = {
        "username": settings.username,
        "password": settings.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "protocol": 2,  # replies keep one shape whatever the server can do
        "retry": Retry(NoBackoff(), 0),
        "driver_info": _DRIVER_INFO,
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


def place_options(settings: RedisSettings, node: tuple[str, int] | None = None) -> dict[str, Any]:
    """Where a connection leads: to ``node``, or to the one server there is."""
    if settings.unix_socket is not None:
        return {"connection_class": UnixDomainSocketConnection, "path": settings.unix_socket}
    host, port = node or settings.hosts[0]
    return {"connection_class": SSLConnection if settings.tls else TcpConnection, "host": host, "port": port}


def sentinel_client(settings: RedisSettings) -> Sentinels:
    """The client that asks the sentinels who the primary is; they have a login of their own."""
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
    return Sentinels(list(settings.hosts), sentinel_kwargs=options)  # type: ignore[no-untyped-call]


def cluster_client(settings: RedisSettings, connections_per_node: int, timeout_s: float | None) -> RedisCluster:
    """A client of the whole cluster, which keeps the slot map and the connections of each node."""
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in settings.hosts],
        # A shard that is down must not stop the queues on the others.
        require_full_coverage=False,
        max_connections=connections_per_node + _SPARE_NODE_CONNECTIONS,
        ssl=settings.tls,
        **socket_options(settings, timeout_s),
    )
