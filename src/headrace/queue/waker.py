"""How an idle worker waits: blocked in Redis, with no polling.

Tokens lie in one list per capability set (``lua/lib/ready.lua``); taking one is an order to claim. The claim can be
sent along with the wait: Redis keeps it back for as long as the wait blocks and runs it the moment a token
comes, so that the task is there without another way back and forth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.model.errors import BackendError

from .connection import Connection
from .driver import pack
from .driver_errors import DRIVER_ERRORS
from .keys import QueueKeys
from .transport import ScriptCall, pack_evalsha

BLOCK_S = 5.0
"""The longest sleep. Whatever wake-up is lost is made up for after this time."""
_PAUSE_AFTER_TROUBLE_S = 0.5


class Woken(msgspec.Struct, frozen=True):
    """How a sleep ended."""

    token_from: str | None = None
    """The list that a token was taken from; None when the time was up."""
    claimed: bytes | None = None
    """The answer to the claim that was sent along; None when there was none, or its answer was lost."""


class Waker:
    """One worker waiting on one queue, with a connection of its own."""

    def __init__(self, connection: Connection, keys: QueueKeys, worker: str) -> None:
        self._connection = connection
        self._lane = connection.blocking(BLOCK_S)
        self._keys = keys
        self._own_key = keys.worker_wake(worker)

    async def wait(self, capsets: Sequence[str], claim: ScriptCall | None = None) -> Woken:
        """Sleep until there may be work, at most for `BLOCK_S`, and then run ``claim``."""
        keys = [self._own_key, *(self._keys.wake(capset) for capset in capsets)]
        payloads = [pack("BLPOP", *keys, BLOCK_S)]
        if claim is not None:
            payloads.append(pack_evalsha(claim))
        answers: list[Any] = []
        try:
            await self._lane.exchange(payloads, answers, self._own_key.encode(), together=True)
        except DRIVER_ERRORS:
            answers.clear()
        if not answers or isinstance(answers[0], Exception):
            # The claim that follows meets the same trouble and deals with it.
            await self._lane.rediscover()
            await asyncio.sleep(_PAUSE_AFTER_TROUBLE_S)
            return Woken()
        token, claimed = answers[0], answers[-1] if claim is not None else None
        return Woken(
            token_from=token[0].decode() if token else None,
            # A script that Redis does not know (any more) is an error here: claimed once more, it is made known.
            claimed=claimed if isinstance(claimed, bytes) else None,
        )

    async def ring(self) -> None:
        """Wake the one who waits here."""
        await self._push(self._own_key)

    async def pass_on(self, key: str) -> None:
        """Give a token back that this worker has no room for, so that another one wakes."""
        if key != self._own_key:
            await self._push(key)

    async def _push(self, key: str) -> None:
        if not self._connection.is_open:
            return  # it was closed under whoever waits, and must not be opened again for this
        try:
            await self._connection.exchange([pack("RPUSH", key, "1")], [], key.encode())
        except (*DRIVER_ERRORS, BackendError):
            return  # whoever waits looks for himself within BLOCK_S
