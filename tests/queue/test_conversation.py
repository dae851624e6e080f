"""One exchange over one connection, past the driver's own way of sending and reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from headrace.queue.conversation import converse
from headrace.queue.driver import pack
from tests.support.redis_server import HOST, RedisServer

PATIENT_S = 60.0
BLOCK = pack("BLPOP", "nothing-is-ever-here", 0)


@pytest.fixture
async def connection(redis_server: RedisServer) -> AsyncIterator[Connection]:
    connection = Connection(host=HOST, port=redis_server.port, protocol=2)
    yield connection
    await connection.disconnect()


async def test_it_connects_and_answers_come_in_order_errors_among_them(connection: Connection, tenant: str):
    answers: list[Any] = []
    payloads = [pack("SET", tenant, "x" * 200_000), pack("LLEN", tenant), pack("GET", tenant), pack("NO-SUCH-COMMAND")]
    await converse(connection, payloads, answers, PATIENT_S)
    ok, wrong_type, value, unknown = answers
    assert (ok, value) == (b"OK", b"x" * 200_000)
    assert isinstance(wrong_type, ResponseError)
    assert isinstance(unknown, ResponseError)
    assert connection.is_connected


async def test_an_answer_that_does_not_come_in_time_is_never_read_as_another_one(connection: Connection):
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        await converse(connection, [BLOCK], [], 0.05)
    assert not connection.is_connected
    answers: list[Any] = []
    await converse(connection, [pack("PING")], answers, PATIENT_S)
    assert answers == [b"PONG"]


async def test_what_had_been_answered_before_the_time_was_up_is_kept(connection: Connection):
    answers: list[Any] = []
    with pytest.raises(TimeoutError):
        await converse(connection, [pack("PING"), BLOCK], answers, 0.05)
    assert answers == [b"PONG"]


async def test_a_cancelled_exchange_closes_the_connection(connection: Connection):
    exchange = asyncio.create_task(converse(connection, [BLOCK], [], PATIENT_S))
    while not connection.is_connected:
        await asyncio.sleep(0.01)
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    assert not connection.is_connected


async def test_a_server_that_goes_away_is_a_connection_error():
    with RedisServer() as server:
        connection = Connection(host=HOST, port=server.port, protocol=2)
        exchange = asyncio.create_task(converse(connection, [BLOCK], [], PATIENT_S))
        while not connection.is_connected:
            await asyncio.sleep(0.01)
        server.kill()
        with pytest.raises((ConnectionError, OSError)):
            await exchange
        assert not connection.is_connected
