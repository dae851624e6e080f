"""Servers that a drill may break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server of the drill's own; DEBUG SLEEP is allowed."""
    with RedisServer([("enable-debug-command", "yes")]) as server:
        yield server


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    """A server that confirms nothing before it is on disk."""
    with RedisServer([("appendonly", "yes"), ("appendfsync", "always")]) as server:
        yield server
