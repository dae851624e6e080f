"""Threads for sync handlers.

A thread cannot be stopped from outside. When a handler outlives its timeout its thread is left behind and
the next task gets another one, so a stuck handler costs a thread, not a slot. The threads are daemons: a
stuck one does not keep the process from ending either.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], contextvars.Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class HandlerThreads:
    """Grows to the number of handlers that run at once; idle threads are used again."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run ``function`` in a thread, in a copy of the caller's context, and return its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._started += 1
                name = f"headrace-handler-{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((function, contextvars.copy_context(), loop, future))
        return await future

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            function, context, loop, future = job
            try:
                result, error = context.run(function), None
            except BaseException as caught:  # noqa: BLE001 - whatever it is, it belongs to the caller
                result, error = None, caught
            with self._lock:
                self._idle += 1
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, future, result, error)

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            for _ in range(self._idle):
                self._jobs.put(None)
            self._idle = 0


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # timed out or cancelled: nobody waits any more
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"handler raised StopIteration: {error}"))
    else:
        future.set_exception(error)
