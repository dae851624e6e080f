"""Lanes: how commands get to the right server.

Here belongs the way of a packed command to the primary that is meant and of its raw answer back: over the one
pool there is, or to the node of a cluster that owns the key. A lane tries once and judges nothing; trying again
is the transport's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import AskError, MovedError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .conversation import converse
from .driver import Word, as_text, pack
from .pools import BoundedPool, take_seat
from .settings import RedisSettings

Route: TypeAlias = bytes | tuple[Word, ...] | None
"""Which node of a cluster is meant: the one of a key, or of the key in a command; None is any primary."""

_MAX_REDIRECTS: Final = 5
_ASKING: Final = pack("ASKING")


class Lane(Protocol):
    """What a ``Connection`` needs of the way to its servers."""

    async def exchange(
        self, payloads: Sequence[bytes], answers: list[Any], route: Route, *, together: bool = False
    ) -> None: ...
    async def rediscover(self) -> None: ...
    async def ask_primaries(self, payloads: Sequence[bytes]) -> Mapping[str, list[Any]]: ...
    async def warm_up(self, connections: int) -> None: ...


class PoolLane:
    """One primary, found by its address or through Sentinel."""

    def __init__(self, pool: BoundedPool, settings: RedisSettings, timeout_s: float) -> None:
        self._pool = pool
        self._settings = settings
        self._timeout_s = timeout_s

    async def exchange(
        self, payloads: Sequence[bytes], answers: list[Any], route: Route, *, together: bool = False
    ) -> None:
        connection = await self._pool.get_connection()
        try:
            await converse(connection, payloads, answers, self._timeout_s)
        finally:
            await self._pool.release(connection)

    async def rediscover(self) -> None:
        # A name that now leads to another server is only looked up by a new connection, and Sentinel is
        # only asked by one.
        await self._pool.leave()

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


class ClusterLane:
    """The primary that owns a key's slot.

    The driver's cluster client keeps the slot map and the connections of each node. Sending is done here,
    because its pipeline sends ASKING and the command it is meant for over different connections, and because
    it does not wait for a free connection.
    """

    def __init__(self, client: RedisCluster, settings: RedisSettings, timeout_s: float) -> None:
        self._client = client
        self._settings = settings
        self._timeout_s = timeout_s
        self._seats: dict[str, asyncio.Semaphore] = {}
        self._map_is_stale = True
        self._failed_node: str | None = None

    async def exchange(
        self, payloads: Sequence[bytes], answers: list[Any], route: Route, *, together: bool = False
    ) -> None:
        await self._refresh_map()
        await self._ask(await self._node_for(route), payloads, answers)
        for position, answer in enumerate(answers):
            if isinstance(answer, AskError):  # MOVED as well
                if together:
                    answers[:] = await self._follow(answer, payloads)
                    break
                (answers[position],) = await self._follow(answer, payloads[position : position + 1])

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
            keys = await self._client.commands_parser.get_keys(as_text(name), *arguments)
            key = keys[0] if keys else None
        node = None if key is None else self._client.get_node_from_key(key)
        return node or self._client.get_random_primary_node()

    async def _follow(self, redirect: AskError, payloads: Sequence[bytes]) -> list[Any]:
        """Go after commands that belong to another node; gives up with the last redirect among the answers."""
        answers: list[Any] = []
        for _ in range(_MAX_REDIRECTS):
            answers = []
            if isinstance(redirect, MovedError):
                await self._client.nodes_manager.move_slot(redirect)
                await self._ask(self._node(redirect.host, redirect.port), payloads, answers)
            else:
                # On one connection: ASKING is good for the next command only.
                asked = [word for payload in payloads for word in (_ASKING, payload)]
                await self._ask(self._node(redirect.host, redirect.port), asked, answers)
                answers = answers[1::2]
            further = next((answer for answer in answers if isinstance(answer, AskError)), None)
            if further is None:
                break
            redirect = further
        return answers

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
        await take_seat(seats, self._settings.pool_size, self._settings.pool_wait_s)
        try:
            connection = node.acquire_connection()
            try:
                await node.disconnect_if_needed(connection)
                if connection.is_connected and await connection.can_read():
                    await connection.disconnect(nowait=True)  # the server hung up while it lay idle
                await converse(connection, payloads, answers, self._timeout_s)
            finally:
                node.release(connection)
        except (RedisConnectionError, RedisTimeoutError):
            self._map_is_stale, self._failed_node = True, node.name
            raise
        finally:
            seats.release()
