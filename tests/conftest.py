"""Fixtures for every test: shared servers, and a tenant of its own for each test.

The shared servers are never flushed. Each test works under a fresh tenant name instead, so tests cannot see
each other's keys and no test destroys what another one (or a parallel run) relies on.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A plain server on the host's clock. Do not stop it: tests that break a server start their own."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def clocked_redis() -> Iterator[RedisServer]:
    """A server whose clock runs and can be advanced with ``clocked_redis.clock.advance(seconds)``."""
    with RedisServer(fake_clock=True) as server:
        yield server


@pytest.fixture(scope="session")
def frozen_redis() -> Iterator[RedisServer]:
    """A server whose clock stands still, exact to the µs, until ``frozen_redis.clock.advance(seconds)``."""
    with RedisServer(fake_clock=True) as server:
        server.clock.freeze()
        yield server


@pytest.fixture
def tenant() -> str:
    """A tenant nobody else has."""
    return f"t-{secrets.token_hex(8)}"
