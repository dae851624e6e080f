"""The chart's Redis, with a real redis-server in the place of its container."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.chart.helm import Document, find
from tests.chart.test_templates import secret_of
from tests.support.redis_server import HOST, free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def container_of(found: list[Document]) -> dict[str, Any]:
    (one,) = find(found, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    container: dict[str, Any] = one
    return container


@contextmanager
def running(container: dict[str, Any], password: str, folder: Path) -> Iterator[int]:
    """The server with its arguments as they are, but for the folder; the answer is its port."""
    port = free_port()
    places = {"/data": str(folder), "$(REDISCLI_AUTH)": password}
    arguments = [places.get(each, each) for each in container["args"]]
    process = subprocess.Popen([*container["command"], *arguments, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: probe(container, port, password) == 0, 30, "its probe did not succeed")
        yield port
    finally:
        process.terminate()
        process.wait(30)


def probe(container: dict[str, Any], port: int, password: str) -> int:
    program, *arguments = container["readinessProbe"]["exec"]["command"]
    env = os.environ | {"REDISCLI_AUTH": password}
    return subprocess.run([program, "-p", str(port), *arguments], env=env, capture_output=True, check=False).returncode


def test_it_asks_for_its_password_and_keeps_what_it_has(defaults, tmp_path):
    container, password = container_of(defaults), secret_of(defaults)["password"]
    with running(container, password, tmp_path) as port:
        assert probe(container, port, "wrong") != 0
        with redis.Redis(HOST, port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        with redis.Redis(HOST, port, password=password) as client:
            client.set("task", "kept")
            settings: Any = client.config_get("*")
            assert settings["maxmemory-policy"] == "noeviction"
            assert settings["maxmemory"] == str(256 << 20)
            assert (settings["appendonly"], settings["appendfsync"], settings["save"]) == ("yes", "everysec", "")
    with running(container, password, tmp_path) as port, redis.Redis(HOST, port, password=password) as client:
        assert client.get("task") == b"kept"
