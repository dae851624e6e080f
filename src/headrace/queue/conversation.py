"""One exchange over one connection: send packed commands, read their answers.

The driver opens the connection, logs in and closes it. In between its streams and its parser are used directly. Its own
way of sending and reading goes through a dozen functions and a timer per answer, and takes longer than packing the
arguments of a call and unpacking its answer together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

_READ_BYTES: Final = 1 << 16


async def converse(
    connection: AbstractConnection, payloads: Sequence[bytes], answers: list[Any], timeout_s: float
) -> None:
    """Send everything, then read one answer for each; error replies are answers too.

    When this raises, the connection is closed: nobody shall read a late answer as the answer to something else.
    """
    if not connection.is_connected:
        await connection.connect()  # type: ignore[no-untyped-call]
    # Private to the driver; tests/queue/test_conversation.py notices when they change.
    driver: Any = connection
    reader: asyncio.StreamReader = driver._reader
    writer: asyncio.StreamWriter = driver._writer
    parser: Any = driver._parser._reader
    is_over_time = False

    def give_up() -> None:
        nonlocal is_over_time
        is_over_time = True
        writer.transport.abort()

    timer = asyncio.get_running_loop().call_later(timeout_s, give_up)
    try:
        writer.writelines(payloads)
        await writer.drain()
        for _ in payloads:
            while (answer := parser.gets(False)) is NOT_ENOUGH_DATA:
                received = await reader.read(_READ_BYTES)
                if not received:
                    raise RedisConnectionError("Connection closed by server.")
                parser.feed(received)
            if isinstance(answer, RedisConnectionError):
                raise answer  # such as LOADING: the server is there, and does not serve yet
            answers.append(answer)
    except BaseException as error:
        await connection.disconnect(nowait=True)
        if is_over_time and not isinstance(error, asyncio.CancelledError):
            raise RedisTimeoutError(f"no answer within {timeout_s:g} s") from None
        raise
    finally:
        timer.cancel()
