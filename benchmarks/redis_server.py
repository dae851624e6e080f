"""A redis-server of our own: loopback, a free port, a folder that goes away with it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

HOST = "127.0.0.1"
START_S = 20.0
_SCRIPT_COMMANDS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    client: Any
    """A client of redis-py; its types cover every protocol at once, so it is taken as it is."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://{HOST}:{self.port}/0"

    def cpu_s(self) -> float:
        """Processor time it has used, background threads included."""
        info = self.client.info("cpu")
        return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])

    def used_memory(self) -> int:
        """Bytes that it has allocated."""
        return int(self.client.info("memory")["used_memory"])

    def script_us(self) -> float:
        """Time it has spent in scripts and functions, in microseconds, as it counts itself."""
        stats = self.client.info("commandstats")
        return float(sum(stats.get(f"cmdstat_{name}", {}).get("usec", 0) for name in _SCRIPT_COMMANDS))


@contextlib.contextmanager
def private_server(*, appendonly: bool) -> Iterator[Server]:
    """Start a server and stop it again, whatever happens in between."""
    if shutil.which("redis-server") is None:
        raise SystemExit("bench: redis-server is missing; run 'make setup' as root, or install redis-server")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-redis-") as folder:
        command = [
            "redis-server", "--port", str(port), "--bind", HOST, "--save", "", "--dir", folder,
            "--appendonly", "yes" if appendonly else "no", "--appendfsync", "everysec",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = redis.Redis(host=HOST, port=port)
        try:
            _wait_until_up(client)
            yield Server(port, client)
        finally:
            client.close()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _wait_until_up(client: Any) -> None:
    until_s = time.monotonic() + START_S
    while True:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.02)
