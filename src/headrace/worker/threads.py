"""Threads for sync handlers.

A thread that has finished takes the next job from the line by itself: the way through the event loop and back takes
longer than a short handler may be made to wait.

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


class _Job:
    """One call of a handler."""

    __slots__ = ("begin", "context", "function", "future", "has_begun", "is_left_behind", "is_over", "loop")

    def __init__(self, function: Callable[[], Any], begin: Callable[[], bool]) -> None:
        self.function = function
        self.begin = begin
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.has_begun = False
        self.is_over = False
        self.is_left_behind = False


class HandlerThreads:
    """Grows to ``most`` threads, apart from those left behind; more jobs than that stand in line."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._in_line = 0
        """Jobs that no thread has been promised yet."""
        self._started = 0

    async def run(self, function: Callable[[], Any], *, begin: Callable[[], bool]) -> Any:
        """Run ``function`` in a thread, in a copy of the caller's context, and return its result.

        The thread calls ``begin`` first, and leaves the function alone if that says no.
        """
        job = _Job(function, begin)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._most:
                self._start_thread()
            else:
                self._in_line += 1
        self._jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            self._leave_behind(job)
            raise

    def _leave_behind(self, job: _Job) -> None:
        """Nobody waits for this job any more. If it runs, its thread may be busy for long: do without it."""
        with self._lock:
            if job.is_over or not job.has_begun:
                return
            job.is_left_behind = True
            self._threads -= 1
            if self._in_line > 0:
                self._in_line -= 1
                self._start_thread()

    def _start_thread(self) -> None:
        self._threads += 1
        self._started += 1
        threading.Thread(target=self._work, name=f"headrace-handler-{self._started}", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                job.has_begun = not job.future.cancelled() and job.begin()
            if job.has_begun:
                try:
                    result, error = job.context.run(job.function), None
                except BaseException as caught:  # noqa: BLE001 - whatever it is, it belongs to the caller
                    result, error = None, caught
                if not job.loop.is_closed():
                    job.loop.call_soon_threadsafe(_resolve, job.future, result, error)
            with self._lock:
                job.is_over = True
                if job.is_left_behind:
                    return
                if self._in_line > 0:
                    self._in_line -= 1
                else:
                    self._idle += 1

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            for _ in range(self._idle):
                self._jobs.put(None)
            self._threads -= self._idle
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
