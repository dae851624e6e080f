"""Waiting for tasks to finish, any number of them on one connection.

The client leaves its inbox with the task (``watch.lua``); whoever finishes the task posts the id there. A
message can be lost, so the task is also looked at again every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from headrace.model.errors import BackendUnavailable, ResultTimeout
from headrace.model.task import TaskRecord

from .cancelling import cancel_and_wait
from .connection import Connection
from .inspection import Inspector
from .keys import new_inbox_channel
from .subscription import Subscription

_LOOK_AGAIN_EVERY_S = 5.0


class Inbox:
    """One event loop's inbox."""

    def __init__(self, connection: Connection) -> None:
        self._channel = new_inbox_channel()
        self._subscription = Subscription(connection, self._channel)
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._listening = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def finished(self, inspector: Inspector, task_id: str, timeout_s: float | None) -> TaskRecord:
        """The task's record once it is terminal; `ResultTimeout` when the time is up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended = asyncio.Event()
        self._waiting.setdefault(task_id, set()).add(ended)
        try:
            while True:
                await self._start_listening()
                ended.clear()
                try:
                    record = await inspector.task(task_id, inbox=self._channel)
                    if record.state.is_terminal:
                        return record
                except BackendUnavailable:
                    # An outage is not the task's end: the caller has said how long to wait.
                    if deadline is None or time.monotonic() >= deadline:
                        raise
                patience_s = _LOOK_AGAIN_EVERY_S
                if deadline is not None:
                    patience_s = min(patience_s, deadline - time.monotonic())
                    if patience_s <= 0:
                        raise ResultTimeout(task_id, timeout_s or 0.0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        await ended.wait()
        finally:
            waiting = self._waiting[task_id]
            waiting.discard(ended)
            if not waiting:
                del self._waiting[task_id]

    async def aclose(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await cancel_and_wait(self._listener)
            self._listener = None

    async def _start_listening(self) -> None:
        if self._listener is None or self._listener.done():
            self._listening.clear()
            self._listener = asyncio.create_task(self._listen(), name="headrace-inbox")
        # Not longer than a look takes: with no subscription the task is polled every few seconds.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN_EVERY_S):
                await self._listening.wait()

    async def _listen(self) -> None:
        async for task_id in self._subscription.messages():
            if task_id is None:
                self._listening.set()
                everyone = [event for events in self._waiting.values() for event in events]
            else:
                everyone = list(self._waiting.get(task_id, ()))
            for event in everyone:
                event.set()
