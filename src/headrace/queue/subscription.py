"""Listening to channels, across reconnects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import structlog

from .connection import Connection
from .driver_errors import DRIVER_ERRORS

_PING_EVERY_S = 15.0
_LONGEST_PAUSE_S = 5.0

_log = structlog.get_logger(__name__)


class Subscription:
    """The messages of some channels.

    Published messages are lost while nobody listens, so they are never the only way to learn something:
    whoever reads them also has a slower, certain way (a heartbeat, a second look at the task).
    """

    def __init__(self, connection: Connection, *channels: str, are_patterns: bool = False) -> None:
        self._connection = connection
        self._channels = channels
        self._are_patterns = are_patterns

    async def messages(self) -> AsyncIterator[str | None]:
        """Each message as text; None whenever the subscription (re)starts and some may have been missed."""
        async for received in self.received():
            yield None if received is None else received[1]

    async def received(self) -> AsyncIterator[tuple[str, str] | None]:
        """The same with the channel before the text."""
        pause_s = 0.1
        while True:
            client = self._connection.pubsub_client()
            pubsub = client.pubsub(ignore_subscribe_messages=True)
            try:
                await (pubsub.psubscribe if self._are_patterns else pubsub.subscribe)(*self._channels)
                pause_s = 0.1
                yield None
                while True:
                    message = await pubsub.get_message(timeout=_PING_EVERY_S)
                    if message is None:
                        await pubsub.ping()  # finds out about a peer that is gone without a word
                    elif message["type"] in ("message", "pmessage"):
                        yield message["channel"].decode(), message["data"].decode()
            except DRIVER_ERRORS as error:
                _log.warning("subscription interrupted", channels=self._channels, error=str(error))
                await asyncio.sleep(random.uniform(0, pause_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]
