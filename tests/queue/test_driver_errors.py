"""What uvloop says of a closed connection is trouble that passes; any other RuntimeError is a defect."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from headrace.model.errors import BackendUnavailable
from headrace.queue.driver_errors import DRIVER_ERRORS, as_backend_error, is_transient
from headrace.queue.settings import RedisSettings
from tests.support.redis_server import HOST, RedisServer

SETTINGS = RedisSettings()


async def _write_to_a_closed_connection(port: int) -> None:
    _, writer = await asyncio.open_connection(HOST, port)
    writer.transport.abort()
    await asyncio.sleep(0.01)  # the transport is closed in the loop's next round
    writer.writelines([b"PING\r\n"])


def test_a_closed_connection_is_worth_another_try(redis_server: RedisServer) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(DRIVER_ERRORS) as caught:
        runner.run(_write_to_a_closed_connection(redis_server.port))
    assert type(caught.value) is RuntimeError, "uvloop has another way of saying it now; is the case still needed?"
    assert is_transient(caught.value, SETTINGS)
    assert isinstance(as_backend_error(caught.value, SETTINGS), BackendUnavailable)


def test_a_defect_comes_out_as_it_is() -> None:
    defect = RuntimeError("something else")
    assert not is_transient(defect, SETTINGS)
    with pytest.raises(RuntimeError, match="something else"):
        as_backend_error(defect, SETTINGS)
