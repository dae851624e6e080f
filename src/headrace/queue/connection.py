"""The connection to Redis: one server, Sentinel or Cluster behind the same few methods.

Here belongs only what ties the parts together: what is opened and closed at the same time, and which client is
for what. The parts are ``lanes``, ``pools``, ``server_check``, ``driver_errors`` and ``driver``; none of them
imports this module. A ``Connection`` belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from .driver import Client, cluster_client, sentinel_client
from .driver_errors import DRIVER_ERRORS, as_backend_error
from .lanes import ClusterLane, Lane, PoolLane, Route
from .pools import BoundedPool, bounded_pool, pubsub_pool
from .sentinels import Address
from .server_check import SERVER_QUESTIONS, check_server
from .settings import RedisSettings

_log = structlog.get_logger(__name__)


class Connection:
    """Everything that talks to one Redis installation, opened and closed together."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self._sentinel = sentinel_client(settings) if settings.mode == "sentinel" else None
        self._listening: list[asyncio.Task[None]] = []
        self._lane: Lane
        if settings.mode == "cluster":
            cluster = cluster_client(settings, settings.pool_size, settings.command_timeout_s)
            self.commands: Client = cluster
            self._lane = ClusterLane(cluster, settings, settings.command_timeout_s)
        else:
            pool = bounded_pool(settings, self._sentinel, settings.pool_size, settings.command_timeout_s)
            self.commands = Redis.from_pool(pool)
            self._lane = PoolLane(pool, settings, settings.command_timeout_s)
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
                for server, answers in (await self._lane.ask_primaries(SERVER_QUESTIONS)).items():
                    check_server(server, answers, self.settings)
                await self._lane.warm_up(self.settings.pool_size // 2)
            except DRIVER_ERRORS as error:
                raise as_backend_error(error, self.settings) from error
            if self._sentinel is not None and self.settings.sentinel_service is not None:
                self._listening = self._sentinel.listen(self.settings.sentinel_service, self._move_to)
            self._is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def aclose(self) -> None:
        """Close every connection of every client made here. It can be opened again afterwards."""
        self._is_open = False
        listening, self._listening = self._listening, []
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        for client in self._made:
            await client.aclose()
        if self._sentinel is not None:
            await self._sentinel.aclose()
        await self._lane.rediscover()

    def blocking(self, block_s: float) -> Lane:
        """A lane of its own, with one connection, for commands that block for up to ``block_s``.

        A blocked command holds its connection, so it must not come from the pool of the scripts; and it is
        given up only when it has blocked for that long and then got no answer.
        """
        timeout_s = block_s + self.settings.command_timeout_s
        if self.settings.mode == "cluster":
            cluster = cluster_client(self.settings, 1, timeout_s)
            self._made.append(cluster)
            return ClusterLane(cluster, self.settings, timeout_s)
        pool = bounded_pool(self.settings, self._sentinel, 1, timeout_s)
        self._made.append(Redis.from_pool(pool))
        return PoolLane(pool, self.settings, timeout_s)

    def pubsub_client(self) -> Redis:
        """A client for subscriptions; each subscription takes a connection of its own from it.

        In a cluster every node carries every message, so this is a plain client of some node: another one
        at each call, so that asking again after trouble gets away from a node that is gone.
        """
        place = self._some_node() if self.settings.mode == "cluster" else None
        client = self._pubsub_clients.get(place)
        if client is None:
            pool = pubsub_pool(self.settings, self._sentinel, place)
            client = self._pubsub_clients[place] = Redis.from_pool(pool)
            self._made.append(client)
        return client

    async def exchange(
        self, payloads: Sequence[bytes], answers: list[Any], route: Route, *, together: bool = False
    ) -> None:
        """Send packed commands in one round trip and append their raw answers, error replies included.

        When the connection breaks this raises, and ``answers`` holds those that had come in. In a cluster
        ``route`` says which node is meant: a key, or a command to find the key in; None is any primary. With
        ``together`` all answers come from one and the same connection, also when the key has moved.
        """
        await self._lane.exchange(payloads, answers, route, together=together)

    async def rediscover(self) -> None:
        """Forget who the primary is, so that the next command finds out anew."""
        if self._sentinel is not None:
            self._sentinel.forget_news()
        await self._lane.rediscover()

    async def _move_to(self, primary: Address) -> None:
        """Leave the old primary at once: it may go on taking writes for seconds, all of them for nothing."""
        _log.info("the sentinels announce a new primary", host=primary[0], port=primary[1])
        for client in self._made:
            if isinstance(client, Redis) and isinstance(client.connection_pool, BoundedPool):
                await client.connection_pool.leave()

    def _some_node(self) -> tuple[str, int]:
        assert isinstance(self.commands, RedisCluster)
        nodes = [(str(node.host), int(node.port)) for node in self.commands.get_nodes()]
        return random.choice(nodes or list(self.settings.hosts))
