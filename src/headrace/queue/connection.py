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

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from .driver import Client, cluster_client, sentinel_client
from .driver_errors import DRIVER_ERRORS, as_backend_error
from .lanes import ClusterLane, Lane, PoolLane, Route
from .pools import bounded_pool, pubsub_pool
from .server_check import SERVER_QUESTIONS, check_server
from .settings import RedisSettings


class Connection:
    """Everything that talks to one Redis installation, opened and closed together."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self._sentinel = sentinel_client(settings) if settings.mode == "sentinel" else None
        self._lane: Lane
        if settings.mode == "cluster":
            cluster = cluster_client(settings, settings.pool_size, settings.command_timeout_s)
            self.commands: Client = cluster
            self._lane = ClusterLane(cluster, settings)
        else:
            pool = bounded_pool(settings, self._sentinel, settings.pool_size, settings.command_timeout_s)
            self.commands = Redis.from_pool(pool)
            self._lane = PoolLane(pool, settings)
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
            client = cluster_client(self.settings, connections, timeout_s)
        else:
            client = Redis.from_pool(bounded_pool(self.settings, self._sentinel, connections, timeout_s))
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
            pool = pubsub_pool(self.settings, self._sentinel, place)
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

    def _some_node(self) -> tuple[str, int]:
        assert isinstance(self.commands, RedisCluster)
        nodes = [(str(node.host), int(node.port)) for node in self.commands.get_nodes()]
        return random.choice(nodes or list(self.settings.hosts))
