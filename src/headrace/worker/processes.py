"""Processes for CPU-bound handlers.

Each runs one task at a time and is used again. A handler that outlives its timeout, or is cancelled, is
killed with its process, which a thread could not be. Arguments and results travel as JSON, as everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
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


class HandlerProcesses:
    """A pool that grows to the number of handlers that run at once."""

    def __init__(self) -> None:
        self._idle: list[asyncio.subprocess.Process] = []

    async def run(self, job: JobSpec, on_progress: Callable[[str], None]) -> Any:
        """Run a handler in a process; raises what it raised."""
        process = self._idle.pop() if self._idle else await _start()
        try:
            result = await _converse(process, job, on_progress)
        except (RemoteError, Retry, Fail, Snooze):
            self._idle.append(process)
            raise
        except BaseException:
            # Timed out, cancelled or dead: this process is not to be used again.
            await _kill(process)
            raise
        self._idle.append(process)
        return result

    async def aclose(self) -> None:
        """Kill the idle processes."""
        while self._idle:
            await _kill(self._idle.pop())


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headrace.worker.process_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for the worker, which decides what becomes of its handlers
    )


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.shield(process.wait())
    if process.stdin is not None:
        process.stdin.close()


async def _converse(process: asyncio.subprocess.Process, job: JobSpec, on_progress: Callable[[str], None]) -> Any:
    assert process.stdin is not None  # both are pipes, see _start
    assert process.stdout is not None
    raw = msgspec.json.encode(job)
    try:
        process.stdin.write(_LENGTH.pack(len(raw)) + raw)
        await process.stdin.drain()
        while True:
            (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
            message = msgspec.json.decode(await process.stdout.readexactly(length), type=ChildMessage)
            if message.kind == "progress":
                on_progress(message.body)
            else:
                return _outcome(message)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        code = await process.wait()
        raise HandlerCrashed(f"the handler's process ended with exit code {code}") from error


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
