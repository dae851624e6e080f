"""Hearing that workers are missing: the bells of all queues of an installation, over one connection.

A bell that rings while nobody listens is not heard. So an operator also looks by itself, only less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .cancelling import cancel_and_wait
from .connection import Connection
from .keys import BELL_CHANNELS, QueueKeys
from .subscription import Subscription


class Bells:
    """Calls those who want to know. Listens from the first of them on, until closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listeners: dict[str, Callable[[], None]] = {}
        self._listening: asyncio.Task[None] | None = None

    def listen(self, keys: QueueKeys, rung: Callable[[], None]) -> None:
        """Call ``rung`` when the bell of this queue rings, or may have rung unheard."""
        self._listeners[keys.bell_channel] = rung
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name="bells")

    def ignore(self, keys: QueueKeys) -> None:
        """Call nobody for this queue any more."""
        self._listeners.pop(keys.bell_channel, None)

    async def aclose(self) -> None:
        if self._listening is not None:
            await cancel_and_wait(self._listening)

    async def _listen(self) -> None:
        async for received in Subscription(self._connection, BELL_CHANNELS, are_patterns=True).received():
            if received is None:
                for rung in list(self._listeners.values()):
                    rung()
            elif (listener := self._listeners.get(received[0])) is not None:
                listener()
