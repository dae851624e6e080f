"""Is the operator alive, and is it ready?

Alive means that its own loops move and that the watch has not gone blind. Neither Redis nor the API server has a part
in it: restarting the operator heals neither. Whether the watch is blind is known by asking: what a listing has and the
watch has not told is a sign of it, and only if it happens again and again.

Ready means that what is known of the cluster is complete, so that this replica could take over at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from headrace.observability.probes import path_of, plain, response

STALLED_AFTER_S = 90.0
_MOST_BLIND_CHECKS = 5
_REQUEST_TIMEOUT_S = 5.0
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """Written by the operator's loops, read by the kubelet."""

    def __init__(self) -> None:
        self.is_filled = False
        self.blind_checks = 0
        """How often in a row a listing had what the watch should have told."""
        self._loops: dict[str, Callable[[], float]] = {}

    def watch_loop(self, name: str, moved_at_s: Callable[[], float]) -> None:
        """Include a loop, which says when it has last come round."""
        self._loops[name] = moved_at_s

    def drop_loop(self, name: str) -> None:
        self._loops.pop(name, None)

    def stalled(self) -> list[str]:
        oldest_s = time.monotonic() - STALLED_AFTER_S
        return [name for name, moved_at_s in self._loops.items() if moved_at_s() < oldest_s]

    @property
    def alive(self) -> bool:
        return not self.stalled() and self.blind_checks < _MOST_BLIND_CHECKS

    @property
    def ready(self) -> bool:
        return self.is_filled and self.alive


async def serve(
    health: Health, port: int, about: Callable[[], dict[str, object]], metrics: Callable[[], Awaitable[bytes]]
) -> asyncio.Server:
    """Answer ``GET /livez`` and ``GET /readyz`` with 200 or 503, and ``GET /metrics`` for Prometheus."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whatever does not look like a request gets no answer.
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                path = path_of(request)
                if path == b"/metrics":
                    writer.write(plain(await metrics(), _PROMETHEUS))
                else:
                    good = {b"/livez": health.alive, b"/readyz": health.ready}.get(path)
                    told = {"stalled": health.stalled(), "blind_checks": health.blind_checks, **about()}
                    writer.write(response(good, told))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "0.0.0.0", port, limit=4096)
