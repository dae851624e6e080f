"""Hearing of a new primary from the sentinels, before the old one knows."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from headrace.queue.connection import Connection
from headrace.queue.sentinels import read_announcement
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import Transport
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SentinelSet
from tests.support.waiting import unless_cut_off


def role(server: RedisServer) -> str:
    with server.client() as client:
        name: str = client.info("replication")["role"]
    return name


def has_taken(server: RedisServer, key: str, value: str) -> bool:
    """Whether this server is a primary and has been written to."""
    with server.client() as client:
        return role(server) == "master" and client.get(key) == value.encode()


async def test_a_deposed_primary_is_left_while_it_still_takes_writes(tenant: str):
    with SentinelSet() as servers:
        connection = Connection(RedisSettings.from_url(f"{servers.url}?pool_size=4"))
        await connection.open()
        try:
            transport = Transport(connection)
            await transport.execute("SET", tenant, "first")
            old = servers.begin_failover()
            successors = [server for server in servers.servers if server is not old]
            deadline_s = time.monotonic() + 30
            on_new = None
            while on_new is None:
                assert time.monotonic() < deadline_s, "no write arrived at another server"
                number = str(time.monotonic_ns())
                await transport.execute("SET", tenant, number)
                for server in successors:
                    # A server whose role changes hangs up on everybody, the test included.
                    if unless_cut_off(partial(has_taken, server, tenant, number))():
                        on_new = server
                await asyncio.sleep(0.05)
            assert role(old) == "master", "the old primary does not know yet; an error would have come too late"
        finally:
            await connection.aclose()


@pytest.mark.parametrize(
    ("channel", "data", "expected"),
    [
        ("+switch-master", "main 10.0.0.1 6379 10.0.0.2 6380", ("10.0.0.2", 6380)),
        ("+switch-master", "other 10.0.0.1 6379 10.0.0.2 6380", None),
        (
            "+promoted-slave",
            "slave 10.0.0.2:6380 10.0.0.2 6380 @ main 10.0.0.1 6379",
            ("10.0.0.2", 6380),
        ),
        ("+promoted-slave", "slave 10.0.0.2:6380 10.0.0.2 6380 @ other 10.0.0.1 6379", None),
        ("+switch-master", "in a form that nobody knows yet", None),
        ("+sdown", "master main 10.0.0.1 6379", None),
    ],
)
def test_announcements_are_read(channel, data, expected):
    message = {"type": "message", "channel": channel.encode(), "data": data.encode()}
    assert read_announcement(message, "main") == expected


def test_the_confirmation_of_a_subscription_is_no_announcement():
    assert read_announcement({"type": "subscribe", "channel": b"+switch-master", "data": 1}, "main") is None
