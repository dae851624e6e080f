"""The fake clock is what many tests lean on, so it is tested itself."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

NOW_IN_SCRIPT = "local now = redis.call('TIME') return now[1] * 1000000 + now[2]"


@pytest.fixture(scope="module")
def clocked_server() -> Iterator[RedisServer]:
    """A server whose clock runs and can be advanced."""
    with RedisServer(fake_clock=True) as server:
        yield server


@pytest.fixture(scope="module")
def frozen_server() -> Iterator[RedisServer]:
    """A server whose clock stands still until it is advanced."""
    with RedisServer(fake_clock=True) as server:
        server.clock.freeze()
        yield server


def now_us(client) -> int:
    seconds, microseconds = client.time()
    return seconds * 1_000_000 + microseconds


def test_frozen_time_is_exact_and_every_step_is_seen_at_once(frozen_server: RedisServer):
    clock, numbers = frozen_server.clock, random.Random(7)
    with frozen_server.client() as client:
        for _ in range(1000):
            clock.advance_us(numbers.choice((0, 1, 7, 999, 1000, 123_457, 1_000_000, 1_000_001, 60_000_000)))
            assert now_us(client) == clock.now_us
            assert client.eval(NOW_IN_SCRIPT, 0) == clock.now_us


def test_keys_expire_by_this_clock(frozen_server: RedisServer, tenant: str):
    with frozen_server.client() as client:
        client.set(tenant, "x", px=60_000)
        frozen_server.clock.advance(59.999)
        assert client.exists(tenant)
        assert client.pttl(tenant) == 1
        frozen_server.clock.advance(0.002)
        assert not client.exists(tenant)


def test_a_blocked_command_times_out_by_this_clock(frozen_server: RedisServer, tenant: str):
    replies: list[object] = []

    def block() -> None:
        with frozen_server.client(socket_timeout=60) as client:
            replies.append(client.blpop([tenant], timeout=5))

    blocked = threading.Thread(target=block)
    blocked.start()
    with frozen_server.client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
    assert replies == []
    frozen_server.clock.advance(6)
    blocked.join(30)
    assert replies == [None]


def test_running_clock_is_ahead_by_its_offset(clocked_server: RedisServer):
    with clocked_server.client() as client:
        ahead_before_us = now_us(client) - time.time_ns() // 1000
        clocked_server.clock.advance(3600)
        ahead_us = now_us(client) - time.time_ns() // 1000
        assert ahead_us - ahead_before_us == pytest.approx(3_600_000_000, abs=30_000_000)
        assert client.eval(NOW_IN_SCRIPT, 0) >= now_us(client) - 30_000_000


def test_freezing_and_resuming_never_goes_back():
    with RedisServer(fake_clock=True) as server, server.client() as client:
        server.clock.advance(100)
        seen = [now_us(client)]
        server.clock.freeze()
        seen.append(now_us(client))
        assert now_us(client) == seen[-1]
        server.clock.advance(10)
        seen.append(now_us(client))
        server.clock.resume()
        seen.append(now_us(client))
        assert seen == sorted(seen)
        wait_until(lambda: now_us(client) > seen[-1])
        with pytest.raises(ValueError, match="only moves forward"):
            server.clock.advance(-1)


def test_the_clock_survives_a_restart():
    with RedisServer(fake_clock=True) as server:
        server.clock.freeze()
        server.clock.advance(1000)
        server.restart()
        with server.client() as client:
            assert now_us(client) == server.clock.now_us
