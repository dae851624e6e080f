"""Worker processes that are replaced when they die, as a cluster would replace them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.chaos.drill_app import MEBIBYTE
from tests.chaos.marks import Executions
from tests.support.redis_server import RedisServer
from tests.support.worker_process import WorkerProcess


class Fleet:
    """``size`` workers. The n-th one always gets the n-th of ``environments`` (cyclically), also when replaced."""

    def __init__(
        self,
        server: RedisServer,
        tenant: str,
        executions: Executions,
        *,
        size: int,
        concurrency: int,
        environments: Sequence[Mapping[str, str]],
        address_space_bytes: int | None = None,
        killed_above_bytes: int | None = None,
    ) -> None:
        self._server = server
        self._tenant = tenant
        self._executions = executions
        self._size = size
        self._concurrency = concurrency
        self._environments = environments
        self._address_space_bytes = address_space_bytes
        self._killed_above_bytes = killed_above_bytes
        self._stopped: set[int] = set()
        self.workers: list[WorkerProcess] = []
        self.deaths = 0
        self.last_words = ""
        """The end of the log of the worker that died last."""
        self.kills_for_memory = 0

    def __enter__(self) -> Self:
        self.workers = [self._start(index) for index in range(self._size)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for worker in self.workers:
            worker.__exit__(kind, error, None)

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self.workers]

    async def keep(self) -> None:
        """Replace what dies, until cancelled."""
        while True:
            await asyncio.sleep(0.02)
            for index, worker in enumerate(self.workers):
                if self._killed_above_bytes is not None and _resident_bytes(worker.pid) > self._killed_above_bytes:
                    # What the kernel does to a container that is over its limit.
                    self.kills_for_memory += 1
                    worker.send(signal.SIGKILL)
                    worker.wait()
                if not worker.running:
                    self._replace(index)

    def busiest(self) -> WorkerProcess | None:
        """The worker with the most running handlers, if there is one that runs any and is not stopped."""
        running = {
            worker: self._executions.running(worker.pid)
            for worker in self.workers
            if worker.running and worker.pid not in self._stopped
        }
        return max(running, key=lambda worker: running[worker]) if any(running.values()) else None

    def kill(self, victim: WorkerProcess) -> int:
        """SIGKILL, and a new worker in its place; returns how many running handlers it met."""
        at_s = time.monotonic()
        victim.send(signal.SIGKILL)
        victim.wait()
        met = self._executions.interrupt(victim.pid, at_s)
        self._replace(self.workers.index(victim))
        return met

    def stop(self, worker: WorkerProcess) -> int:
        """SIGSTOP; returns how many running handlers it met."""
        at_s = time.monotonic()
        worker.send(signal.SIGSTOP)
        self._stopped.add(worker.pid)
        return self._executions.interrupt(worker.pid, at_s)

    def resume(self, worker: WorkerProcess) -> None:
        """SIGCONT."""
        self._stopped.discard(worker.pid)
        worker.send(signal.SIGCONT)

    def _start(self, index: int) -> WorkerProcess:
        worker = WorkerProcess(
            self._server,
            self._tenant,
            *("--concurrency", str(self._concurrency), "--grace", "5", "--log-level", "error"),
            app="tests.chaos.drill_app:app",
            environment=self._environments[index % len(self._environments)],
            address_space_bytes=self._address_space_bytes,
        )
        self._executions.follow(worker.pid)
        return worker

    def _replace(self, index: int) -> None:
        dead = self.workers[index]
        self.deaths += 1
        self.last_words = dead.log()[-4000:]
        # A handler that took its worker down left its task behind: that one has to begin again, too.
        self._executions.interrupt(dead.pid, time.monotonic())
        self._executions.forget(dead.pid)
        dead.__exit__(None, None, None)
        self.workers[index] = self._start(index)


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0  # it is gone
    return pages * os.sysconf("SC_PAGE_SIZE")


MEMORY_LIMIT_BYTES = 400 * MEBIBYTE
"""Four times what a worker needs; what a worker that eats memory is killed above."""
