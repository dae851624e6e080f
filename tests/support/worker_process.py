"""Real worker processes, as `headrace worker` starts them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.topology import Installation

REPOSITORY = Path(__file__).parents[2]


class WorkerProcess:
    """One `headrace worker`; killed at the end of the block if it still runs.

    ``options`` are appended to the URL of the server; ``marks_url`` is a server for the marks of handlers, where
    the one with the queue is not to be relied on.
    """

    def __init__(
        self,
        server: Installation,
        tenant: str,
        *arguments: str,
        app: str = "tests.worker.fault_app:app",
        options: str = "",
        marks_url: str | None = None,
        environment: Mapping[str, str] | None = None,
        address_space_bytes: int | None = None,
    ) -> None:
        """``environment`` comes on top of the test's own; ``address_space_bytes`` bounds the worker's memory."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        variables = {
            "HEADRACE_TEST_URL": server.url + options,
            # Where handlers leave marks for the test: keys with the hash tag {tenant}.
            "HEADRACE_TEST_MARKS_URL": marks_url or server.owner_of(f"{{{tenant}}}").url,
            "HEADRACE_TEST_TENANT": tenant,
            **(environment or {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "worker", app, "--log-style", "json", *arguments],
            cwd=REPOSITORY,
            env=os.environ | variables,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        resource.prlimit(self.pid, resource.RLIMIT_CORE, (0, 0))  # a crash on purpose leaves no file behind
        if address_space_bytes is not None:
            resource.prlimit(self.pid, resource.RLIMIT_AS, (address_space_bytes, address_space_bytes))

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
