"""How an idle worker waits: blocked in Redis, with no polling.

Tokens lie in one list per capability set (``lua/lib/ready.lua``); taking one is an order to claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from redis.exceptions import RedisError

from .connection import Connection
from .keys import QueueKeys

BLOCK_S = 5.0
"""The longest sleep. Whatever wake-up is lost is made up for after this time."""


class Waker:
    """One worker waiting on one queue, with a connection of its own."""

    def __init__(self, connection: Connection, keys: QueueKeys, worker: str) -> None:
        self._client = connection.blocking(BLOCK_S)
        self._keys = keys
        self._own_key = keys.worker_wake(worker)

    async def wait(self, capsets: Sequence[str]) -> str | None:
        """Sleep until there may be work; returns the list the token came from, or None after `BLOCK_S`."""
        keys = [self._own_key, *(self._keys.wake(capset) for capset in capsets)]
        try:
            token = await self._client.blpop(keys, timeout=BLOCK_S)
        except (TimeoutError, RedisError, OSError):
            # The claim that follows meets the same trouble and deals with it.
            await asyncio.sleep(0.5)
            return None
        return cast(bytes, token[0]).decode() if token else None

    async def pass_on(self, key: str) -> None:
        """Give a token back that this worker has no room for, so that another one wakes."""
        if key == self._own_key:
            return
        try:
            await self._client.rpush(key, "1")
        except (TimeoutError, RedisError, OSError):
            return  # the others look for themselves within BLOCK_S
