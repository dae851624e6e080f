"""Is the worker alive, and is it ready?

Alive means that every claim loop has moved lately, not that Redis answers: a worker whose loop hangs must
be restarted, one whose Redis is away must not. Served from the heartbeat's thread, which still answers
when a handler blocks the loop.

Who asks while the worker still starts gets the answer when it has started, if that does not take too long:
the kubelet would ask again only a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

from headrace.observability.probes import path_of, response

STALLED_AFTER_S = 60.0
_REQUEST_TIMEOUT_S = 5.0
_START_PATIENCE_S = 0.8
"""How long a question waits for the end of the start; the kubelet waits for one second."""
_START_POLL_S = 0.01


class Health:
    """Written by the claim loops, read by the health server."""

    def __init__(self, stalled_after_s: float = STALLED_AFTER_S) -> None:
        self._stalled_after_s = stalled_after_s
        self._moved_at_s: dict[str, float] = {}
        self._parked: set[str] = set()
        self.draining = False

    def moved(self, queue: str) -> None:
        """A claim loop has come round."""
        self._moved_at_s[queue] = time.monotonic()

    def set_parked(self, queue: str, parked: bool) -> None:
        """Whether the queue has put this worker aside."""
        if parked:
            self._parked.add(queue)
        else:
            self._parked.discard(queue)

    def stalled(self) -> list[str]:
        """The queues whose claim loop hangs."""
        oldest = time.monotonic() - self._stalled_after_s
        return [queue for queue, moved_at_s in list(self._moved_at_s.items()) if moved_at_s < oldest]

    @property
    def started(self) -> bool:
        """Whether a claim loop has come round at all."""
        return bool(self._moved_at_s)

    @property
    def alive(self) -> bool:
        return not self.stalled()

    @property
    def ready(self) -> bool:
        """Whether this worker takes tasks from at least one of its queues."""
        claiming = set(self._moved_at_s) - self._parked
        return bool(claiming) and not self.draining and self.alive


async def serve_health(health: Health, metrics: Callable[[], bytes], listener: socket.socket) -> asyncio.Server:
    """Answer ``GET /livez`` and ``GET /readyz`` with 200 or 503, and ``GET /metrics`` with what ``metrics`` answers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whatever does not look like a request gets no answer.
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                await _until_started(health)
                writer.write(metrics() if path_of(request) == b"/metrics" else _response(health, request))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, sock=listener, limit=4096)


async def _until_started(health: Health) -> None:
    """Wait for the claim loops, which are in another thread."""
    deadline_s = time.monotonic() + _START_PATIENCE_S
    while not health.started and time.monotonic() < deadline_s:  # noqa: ASYNC110 - an Event belongs to one thread's loop
        await asyncio.sleep(_START_POLL_S)


def _response(health: Health, request: bytes) -> bytes:
    path = path_of(request)
    if path == b"/livez":
        return response(health.alive, {"alive": health.alive, "stalled": health.stalled()})
    if path == b"/readyz":
        return response(health.ready, {"ready": health.ready, "draining": health.draining})
    return response(None, {})
