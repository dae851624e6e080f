"""What the Python programs share: the payload, the timing, and the answer of the latency probe.

A producer is called with one of

    bulk N              enqueue N no-op tasks as fast as the library can
    single N            enqueue N no-op tasks, each awaited before the next
    latency N SECONDS   enqueue a probe, wait until its handler has started, N times or for so long

and prints one JSON object. The programs in other languages do the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

PAYLOAD = "x" * 100
PAUSE_S = (0.02, 0.1)
"""Between two probes, at random: long enough that the worker is idle again when the next one comes.

To it comes a random part of the longest latency so far. Otherwise every probe would meet a worker that polls just
after it has looked, and always wait for a whole interval.
"""
PATIENCE_S = 20.0
"""A probe that is not answered within this time is lost; the slowest peer polls every 1.5 seconds."""
WARM_UP = 3
"""Probes that are not counted: the first ones pay for connections and lazy imports."""


def redis_url() -> str:
    """The bench's private server."""
    return os.environ["BENCH_REDIS_URL"]


def concurrency() -> int:
    """How many tasks one worker process runs at once."""
    return int(os.environ["BENCH_CONCURRENCY"])


# ── the handler's side ───────────────────────────────────────────────────────────────────────────────────

_answers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def answer_probe(payload: str) -> None:
    """Called first thing by the probe's handler: tell the producer how long the task took to get here."""
    started_ns = time.time_ns()
    sent_ns, port, _ = payload.split(":")
    _answers.sendto(str(started_ns - int(sent_ns)).encode(), ("127.0.0.1", int(port)))


# ── the producer's side ──────────────────────────────────────────────────────────────────────────────────


class _Probes:
    """Payloads that carry the time they were made, and the answers to them."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(PATIENCE_S)
        self._port = self._socket.getsockname()[1]
        self.latencies_ns: list[int] = []

    def payload(self) -> str:
        return f"{time.time_ns()}:{self._port}:".ljust(len(PAYLOAD), "x")

    def wait(self) -> None:
        self.latencies_ns.append(int(self._socket.recv(64)))
        time.sleep(random.uniform(*PAUSE_S) + random.random() * self._longest_ns() / 1e9)

    def _longest_ns(self) -> int:
        return max(self.latencies_ns[WARM_UP:], default=0)

    def wanted(self, count: int, until_s: float) -> bool:
        taken = len(self.latencies_ns)
        return taken < WARM_UP + min(count, 1) or (taken < WARM_UP + count and time.monotonic() < until_s)

    def report(self) -> None:
        _print({"latencies_ns": self.latencies_ns[WARM_UP:]})


def produce(*, bulk: Callable[[int], Any], single: Callable[[str], Any], probe: Callable[[str], Any]) -> None:
    """The main program of a producer without an event loop."""
    mode, count = sys.argv[1], int(sys.argv[2])
    if mode == "latency":
        probes, until_s = _Probes(), time.monotonic() + float(sys.argv[3])
        while probes.wanted(count, until_s):
            probe(probes.payload())
            probes.wait()
        probes.report()
        return
    started_s = time.perf_counter()
    if mode == "bulk":
        bulk(count)
    else:
        for _ in range(count):
            single(PAYLOAD)
    _print({"count": count, "seconds": time.perf_counter() - started_s})


async def produce_async(
    *,
    bulk: Callable[[int], Awaitable[Any]],
    single: Callable[[str], Awaitable[Any]],
    probe: Callable[[str], Awaitable[Any]],
) -> None:
    """The main program of a producer with an event loop."""
    mode, count = sys.argv[1], int(sys.argv[2])
    if mode == "latency":
        probes, until_s = _Probes(), time.monotonic() + float(sys.argv[3])
        while probes.wanted(count, until_s):
            await probe(probes.payload())
            probes.wait()  # blocks the loop, which has nothing else to do
        probes.report()
        return
    started_s = time.perf_counter()
    if mode == "bulk":
        await bulk(count)
    else:
        for _ in range(count):
            await single(PAYLOAD)
    _print({"count": count, "seconds": time.perf_counter() - started_s})


def run_on_uvloop(main: Callable[[], Awaitable[None]]) -> None:
    """Run an async producer on the faster loop, which every async peer here supports."""
    import uvloop

    async def body() -> None:
        await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())


def _print(figures: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
