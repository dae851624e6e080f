"""Starting the peers' programs, and stopping every process that came of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from benchmarks.install import Installed
from benchmarks.redis_server import Server

REPOSITORY = Path(__file__).parent.parent
GRACE_S = 4.0
_TAIL = 1500


class ProgramFailed(Exception):
    """A peer's program ended with an error, ended too early or took too long."""


def produce(installed: Installed, server: Server, *arguments: object, limit_s: float) -> dict[str, Any]:
    """Run a producer to its end and return what it measured."""
    command = [*installed.command(installed.peer.producer), *map(str, arguments)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = _start(command, installed, server, output, errors)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{arguments[0]}: no end after {limit_s:g} s\n{_tail(errors)}") from None
        finally:
            _stop([process])
        if status != 0:
            raise ProgramFailed(f"{arguments[0]}: exit status {status}\n{_tail(errors)}")
        output.seek(0)
        figures = json.loads(output.read().splitlines()[-1])
        assert isinstance(figures, dict)
        return figures


class Workers:
    """Running worker processes of one peer."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], log: IO[bytes]) -> None:
        self._processes = processes
        self._log = log

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def check(self) -> None:
        """Raise if one has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise ProgramFailed(f"a worker ended with status {process.returncode}\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of what they wrote."""
        return _tail(self._log)


@contextlib.contextmanager
def workers(installed: Installed, server: Server, count: int) -> Iterator[Workers]:
    """Run ``count`` worker processes."""
    command = installed.command(installed.peer.worker)
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as log:
        try:
            for _ in range(count):
                processes.append(_start(command, installed, server, log, log))
            yield Workers(processes, log)
        finally:
            _stop(processes)


def _start(
    command: list[str], installed: Installed, server: Server, output: IO[bytes], errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **installed.environment(),
        "BENCH_REDIS_URL": server.url,
        "BENCH_CONCURRENCY": str(installed.concurrency),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    # A session of its own: whatever it forks can be found and ended with it.
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=output, stderr=errors, start_new_session=True
    )


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _signal(process, signal.SIGTERM, whole_group=False)
    until_s = time.monotonic() + GRACE_S
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until_s - time.monotonic()))
    for process in processes:
        # Also after a clean end: a child that outlived its parent would disturb the next measure.
        _signal(process, signal.SIGKILL, whole_group=True)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals, *, whole_group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if whole_group:
            os.killpg(process.pid, number)
        elif process.poll() is None:
            process.send_signal(number)


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    return file.read().decode(errors="replace").strip()
