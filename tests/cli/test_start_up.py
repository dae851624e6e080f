"""What a worker imports before its first claim. It decides how long a queue that scales from zero waits for a pod.

Where Rich or cryptography is installed, structlog and redis import it by themselves; the worker image comes without.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.redis_server import HOST, RedisServer

HEAVY = (
    "click",
    "kopf",
    "kubernetes",
    "multiprocessing.pool",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
    "typer",
)
APP = """
import sys
from headrace import Headrace, QueueConfig
app = Headrace({url!r}, tenant={tenant!r}, queues=[QueueConfig("jobs")])

@app.task(queue="jobs")
def loaded() -> list[str]:
    return sorted(sys.modules)
"""


def test_a_worker_starts_without_heavy_modules(tmp_path: Path, redis_server: RedisServer, tenant: str) -> None:
    (tmp_path / "tasks.py").write_text(APP.format(url=redis_server.url, tenant=tenant))
    worker = subprocess.Popen([sys.executable, "-m", "headrace.cli.main", "worker", "tasks:app"], cwd=tmp_path)
    try:
        loaded = _modules_of_the_worker(tmp_path)
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert "headrace.worker.worker" in loaded
    assert [module for module in HEAVY if module in loaded] == []


def _modules_of_the_worker(folder: Path) -> set[str]:
    ask = "from tasks import loaded; print(*loaded.blocking.enqueue().result(timeout_s=60))"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        pytest.fail(done.stderr)
    return set(done.stdout.split())


def test_a_sigterm_while_the_worker_connects_is_heeded(tmp_path: Path, tenant: str) -> None:
    """The first process of a container does not die of a signal that nobody handles: it would be lost."""
    server = RedisServer()
    (tmp_path / "tasks.py").write_text(APP.format(url=server.url, tenant=tenant))
    with socket.create_server((HOST, server.port)) as silent:
        silent.settimeout(60)
        worker = subprocess.Popen([sys.executable, "-m", "headrace.cli.main", "worker", "tasks:app"], cwd=tmp_path)
        try:
            connection, _ = silent.accept()
            worker.send_signal(signal.SIGTERM)
            connection.close()
            silent.close()
            with server:
                assert worker.wait(60) == 0
        finally:
            worker.kill()
            worker.wait()
