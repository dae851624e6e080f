"""Processes for CPU-bound handlers.

Each runs one task at a time and is used again. A handler that outlives its timeout, or is cancelled, is
killed with its process, which a thread could not be. Arguments and results travel as JSON, as everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.model.outcomes import Fail, Retry, Snooze

_LENGTH = struct.Struct(">I")


class JobSpec(msgspec.Struct, frozen=True):
    """What the child needs to run one handler."""

    module: str
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    context: dict[str, Any]


class ChildMessage(msgspec.Struct, frozen=True):
    """What the child has to say: a result, an error, an outcome the handler asked for, or progress."""

    kind: str
    body: Any = None
    type: str = ""
    message: str = ""
    traceback: str = ""
    retriable: bool = True


class HandlerCrashed(Exception):
    """Raised when the process died under the handler."""


class RemoteError(Exception):
    """An error from the child, with its own type's name and traceback."""

    def __init__(self, message: ChildMessage) -> None:
        super().__init__(message.message)
        self.remote = message


class _Job:
    """One call of a handler."""

    def __init__(self, spec: JobSpec, on_progress: Callable[[str], None], begin: Callable[[], bool]) -> None:
        raw = msgspec.json.encode(spec)
        self.frame = _LENGTH.pack(len(raw)) + raw
        self.on_progress = on_progress
        self.begin = begin
        self.answer: asyncio.Future[ChildMessage] = asyncio.get_running_loop().create_future()
        self.child: _Child | None = None


class _Child(asyncio.SubprocessProtocol):
    """One process. What it says is read here, so that it gets its next job as soon as it has answered."""

    def __init__(self, on_free: Callable[[_Child], None], on_gone: Callable[[_Child], None]) -> None:
        self._on_free = on_free
        self._on_gone = on_gone
        self._job: _Job | None = None
        self._received = bytearray()
        self._open_ends = 2  # the process itself, and the pipe with its answers
        self.gone = asyncio.Event()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.subprocess_exec(
            lambda: self,
            sys.executable,
            "-m",
            "headrace.worker.process_child",
            stderr=None,
            start_new_session=True,  # a Ctrl-C is for the worker, which decides what becomes of its handlers
        )
        self._jobs: Any = self._transport.get_pipe_transport(0)

    def run(self, job: _Job) -> None:
        self._job = job
        job.child = self
        self._jobs.write(job.frame)

    async def kill(self) -> None:
        """Returns when it is dead, whoever cancels this."""
        with contextlib.suppress(ProcessLookupError):
            self._transport.kill()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(self.gone.wait())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
            if len(received) < end:
                return
            message = msgspec.json.decode(received[_LENGTH.size : end], type=ChildMessage)
            del received[:end]
            self._heard(message)

    def _heard(self, message: ChildMessage) -> None:
        job = self._job
        assert job is not None  # it speaks only of the job it has
        if message.kind == "progress":
            job.on_progress(message.body)
            return
        self._job = None
        if not job.answer.done():
            job.answer.set_result(message)
            self._on_free(self)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._end_closed()

    def process_exited(self) -> None:
        self._end_closed()

    def _end_closed(self) -> None:
        self._open_ends -= 1
        if self._open_ends > 0:
            return  # its last answer may still be on the way
        code = self._transport.get_returncode()
        self._transport.close()
        if self._job is not None and not self._job.answer.done():
            self._job.answer.set_exception(HandlerCrashed(f"the handler's process ended with exit code {code}"))
        self.gone.set()
        self._on_gone(self)


class HandlerProcesses:
    """Grows to ``most`` processes; more jobs than that stand in line."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[_Job] = deque()
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()
        self._starts: set[asyncio.Task[None]] = set()

    async def run(self, spec: JobSpec, on_progress: Callable[[str], None], *, begin: Callable[[], bool]) -> Any:
        """Run a handler in a process; raises what it raised.

        ``begin`` is called first, and the handler is left alone if that says no.
        """
        job = _Job(spec, on_progress, begin)
        self._line.append(job)
        self._serve()
        try:
            return _outcome(await job.answer)
        except asyncio.CancelledError:
            # Timed out or cancelled. Its process, unless it has just answered, ends before anything is settled.
            if job.child is not None and job.answer.cancelled():
                await job.child.kill()
            raise

    def _serve(self) -> None:
        while self._line and self._idle:
            job = self._line.popleft()
            if not job.answer.done() and job.begin():
                self._idle.pop().run(job)
        while len(self._line) > len(self._starts) and len(self._children) < self._most:
            child = _Child(self._free, self._gone)
            self._children.add(child)
            start = asyncio.create_task(self._start(child))
            self._starts.add(start)
            start.add_done_callback(self._starts.discard)

    async def _start(self, child: _Child) -> None:
        try:
            await child.start()
        except OSError as error:
            self._children.discard(child)
            if self._line and not (job := self._line.popleft()).answer.done():
                job.answer.set_exception(error)
        else:
            self._free(child)

    def _free(self, child: _Child) -> None:
        self._idle.append(child)
        self._serve()

    def _gone(self, child: _Child) -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        self._serve()

    async def aclose(self) -> None:
        """Kill the processes."""
        self._line.clear()
        await asyncio.gather(*self._starts)
        await asyncio.gather(*(child.kill() for child in tuple(self._children)))


def _outcome(message: ChildMessage) -> Any:
    if message.kind == "result":
        return message.body
    if message.kind == "retry":
        raise Retry(message.message, after_s=message.body)
    if message.kind == "fail":
        raise Fail(message.message)
    if message.kind == "snooze":
        raise Snooze(message.body)
    raise RemoteError(message)
