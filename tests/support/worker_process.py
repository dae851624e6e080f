"""Real worker processes, as `headrace worker` starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.redis_server import RedisServer

REPOSITORY = Path(__file__).parents[2]


class WorkerProcess:
    """One `headrace worker`; killed at the end of the block if it still runs."""

    def __init__(
        self, server: RedisServer, tenant: str, *arguments: str, app: str = "tests.worker.fault_app:app"
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        environment = os.environ | {"HEADRACE_TEST_URL": server.url, "HEADRACE_TEST_TENANT": tenant}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "worker", app, "--log-style", "json", *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 60) -> int:
        """The exit code."""
        return self._process.wait(timeout_s)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self._process.kill()  # works on a stopped process too
        self._process.wait()
        if error is not None:
            print(f"--- log of worker {self.pid} ---\n{self.log()}")
        self._log.close()
