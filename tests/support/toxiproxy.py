"""A real network between a client and a server, with faults on demand: toxiproxy.

The program is built once per version from its published Go module, into the user's cache. It listens on loopback only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.support.redis_server import HOST, free_port
from tests.support.waiting import wait_until

VERSION = "v2.5.0"
_MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}"
_BUILD_TIMEOUT_S = 600
_PROXY = "redis"

Direction = Literal["upstream", "downstream"]


def installed_toxiproxy() -> Path:
    """The program, built when it is not there yet."""
    folder = _cache() / "headrace" / "tools" / f"toxiproxy-{VERSION}"
    program = folder / "server"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise RuntimeError("the network drills need Go to build toxiproxy, and there is no `go` on the PATH")
    # Built beside its place and moved there, so that an interrupted build leaves nothing that looks finished.
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        done = subprocess.run(
            [go, "install", _MODULE],
            env=os.environ | {"GOBIN": str(scratch)},
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"toxiproxy {VERSION} could not be built with `go install`:\n{done.stderr[-2000:]}")
        folder.mkdir(exist_ok=True)
        os.replace(scratch / "server", program)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return program


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class Toxiproxy:
    """A proxy before one server. Use it as a context manager; clients connect to ``port``."""

    def __init__(self, server_port: int) -> None:
        self.port = free_port()
        self._server_port = server_port
        self._api_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The server behind the proxy, in Headrace's URL form."""
        return f"redis://{HOST}:{self.port}/0"

    def __enter__(self) -> Self:
        command = [str(installed_toxiproxy()), "-host", HOST, "-port", str(self._api_port)]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]  # it does not outlive the test
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(self._answers, 30, "toxiproxy did not start")
            self._ask(
                "POST",
                "/proxies",
                {
                    "name": _PROXY,
                    "listen": f"{HOST}:{self.port}",
                    "upstream": f"{HOST}:{self._server_port}",
                    "enabled": True,
                },
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────

    def add(self, name: str, kind: str, direction: Direction, **attributes: int) -> None:
        """Let a fault begin; open connections have it at once."""
        toxic = {"name": name, "type": kind, "stream": direction, "toxicity": 1.0, "attributes": attributes}
        self._ask("POST", f"/proxies/{_PROXY}/toxics", toxic)

    def remove(self, name: str) -> None:
        """Let it end."""
        self._ask("DELETE", f"/proxies/{_PROXY}/toxics/{name}")

    @contextmanager
    def resets(self) -> Iterator[None]:
        """Within the block every connection, old or new, is reset (RST) as soon as Redis answers on it."""
        with self._toxic("reset", "reset_peer", "downstream", timeout=0):
            yield

    @contextmanager
    def silence(self, direction: Direction) -> Iterator[None]:
        """Within the block connections stay open and nothing gets through in that direction; then they are closed."""
        with self._toxic("silence", "timeout", direction, timeout=0):
            yield

    @contextmanager
    def latency(self, latency_ms: int, jitter_ms: int) -> Iterator[None]:
        """Within the block every answer is late."""
        with self._toxic("latency", "latency", "downstream", latency=latency_ms, jitter=jitter_ms):
            yield

    @contextmanager
    def _toxic(self, name: str, kind: str, direction: Direction, **attributes: int) -> Iterator[None]:
        self.add(name, kind, direction, **attributes)
        try:
            yield
        finally:
            self.remove(name)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"toxiproxy ended with {self._process.returncode}")
        try:
            self._ask("GET", "/version")
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        request = urllib.request.Request(
            f"http://{HOST}:{self._api_port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        # Straight to loopback: a proxy that the environment names is for the world outside.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            answer.read()
