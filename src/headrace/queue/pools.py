"""Pools of connections, and the seats that bound them.

Here belongs how many connections there may be, how long somebody waits for one, and how a pool is made for
a place: an address, or the primary that Sentinel names. What is said over a connection is the lanes' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from headrace.model.errors import PoolExhausted

from .driver import place_options, socket_options
from .settings import RedisSettings

_PUBSUB_HEALTH_CHECK_S: Final = 15.0


class BoundedPool(ConnectionPool):
    """A pool that never exceeds its size and says so when nobody gave a connection back in time."""

    def __init__(self, *args: Any, wait_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._wait_s = wait_s
        self._seats = asyncio.Semaphore(self.max_connections)

    async def get_connection(self, command_name: str | None = None, *keys: Any, **options: Any) -> AbstractConnection:
        await take_seat(self._seats, self.max_connections, self._wait_s)
        connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call]
        try:
            # Connected and quiet is the usual case, and all that the driver's own check would find out.
            if connection.should_reconnect():  # type: ignore[no-untyped-call]
                await connection.disconnect(nowait=True)
            if not connection.is_connected or await connection.can_read():
                await _uncancelled(self.ensure_connection(connection))
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        # Nothing is awaited before the seat is free: a cancelled task always gives its connection back.
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)
        self._seats.release()

    async def leave(self) -> None:
        """Open every connection anew before its next use; what is under way is brought to its end."""
        for connection in self._in_use_connections:
            connection.mark_for_reconnect()  # type: ignore[no-untyped-call]
        await self.disconnect(inuse_connections=False)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        if inuse_connections:
            await super().disconnect()
            return
        # Without waiting for the sockets to be closed: while the driver waits, another task can take such
        # a connection and reconnect it, only to have it torn down.
        for connection in list(self._available_connections):
            await connection.disconnect(nowait=True)


class BoundedSentinelPool(BoundedPool, SentinelConnectionPool):
    """The same for the primary that Sentinel names."""


async def _uncancelled(connecting: Awaitable[None]) -> None:
    """Before Python 3.12 ``asyncio.wait_for``, which the driver logs in with, may forget that it was cancelled."""
    task = asyncio.current_task()
    asked_before = task.cancelling() if task is not None else 0
    await connecting
    if task is not None and task.cancelling() > asked_before:
        raise asyncio.CancelledError


async def take_seat(seats: asyncio.Semaphore, size: int, wait_s: float) -> None:
    """Wait for one of ``size`` seats; raises ``PoolExhausted`` when none is free within ``wait_s``."""
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


def bounded_pool(settings: RedisSettings, sentinel: Sentinel | None, size: int, timeout_s: float | None) -> BoundedPool:
    """A pool of at most ``size`` connections to the primary, whose sockets are patient for ``timeout_s``."""
    options = socket_options(settings, timeout_s)
    bound = {"max_connections": size, "wait_s": settings.pool_wait_s}
    if sentinel is not None:
        kind = SentinelManagedSSLConnection if settings.tls else SentinelManagedConnection
        return BoundedSentinelPool(settings.sentinel_service, sentinel, connection_class=kind, **bound, **options)
    return BoundedPool(**place_options(settings), **bound, **options)


def pubsub_pool(settings: RedisSettings, sentinel: Sentinel | None, node: tuple[str, int] | None) -> ConnectionPool:
    """A pool without a bound: the number of subscriptions is the program's own choice.

    ``node`` is the address of the cluster node that is meant; None outside of a cluster.
    """
    options = socket_options(settings, settings.command_timeout_s)
    options["health_check_interval"] = _PUBSUB_HEALTH_CHECK_S
    if sentinel is not None:
        kind = SentinelManagedSSLConnection if settings.tls else SentinelManagedConnection
        service = settings.sentinel_service
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            service, sentinel, connection_class=kind, **options
        )
    return ConnectionPool(**place_options(settings, node), **options)
