"""The measures. Each runs on an empty server and stops everything it has started."""

from __future__ import annotations

import math
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import processes
from benchmarks.install import Installed
from benchmarks.processes import ProgramFailed, Workers
from benchmarks.redis_server import HOST, Server

Figures = dict[str, Any]

POLL_S = 0.01
WARM_UP_PART = 0.1
"""Of a drain, this part is not timed: connections are opened, code is compiled, a second process starts."""
DRAIN_LIMIT_S = 60.0
START_LIMIT_S = 60.0
PRODUCE_LIMIT_S = 180.0
SETTLE_S = 0.5
"""After its client has gone, Redis frees the buffers of the connection within this time."""


def drain(
    installed: Installed,
    server: Server,
    *,
    tasks: int,
    workers: int,
    begin: float = WARM_UP_PART,
    end: float = 1.0,
    poll_s: float = POLL_S,
    on_mark: Callable[[Workers], None] | None = None,
) -> Figures:
    """Preload the queue, start the workers, and time from a tenth done to all done.

    ``begin`` and ``end`` are other parts of the tasks to time between; ``on_mark`` is called at both.
    """
    server.client.flushall()
    processes.produce(installed, server, "bulk", tasks, limit_s=PRODUCE_LIMIT_S)
    remaining = installed.peer.remaining
    if (waiting := remaining(server.client, tasks)) != tasks:
        raise ProgramFailed(f"{waiting} of {tasks} preloaded tasks are in the queue")
    with processes.workers(installed, server, workers) as running:

        def wait_for(done: int, limit_s: float) -> tuple[int, float, float]:
            until_s = time.monotonic() + limit_s
            while True:
                left = remaining(server.client, tasks)
                now_s = time.monotonic()
                if tasks - left >= done:
                    cpu_s = server.cpu_s()
                    if on_mark is not None:
                        on_mark(running)
                    return tasks - left, now_s, cpu_s
                if now_s > until_s:
                    raise ProgramFailed(f"{left} of {tasks} tasks left after {limit_s:g} s\n{running.log_tail()}")
                running.check()
                time.sleep(poll_s)

        done_first, first_s, first_cpu_s = wait_for(max(1, math.ceil(tasks * begin)), START_LIMIT_S)
        done_last, last_s, last_cpu_s = wait_for(math.ceil(tasks * end), DRAIN_LIMIT_S)
    elapsed_s = last_s - first_s
    return {
        "tasks": tasks,
        "timed": done_last - done_first,
        "seconds": elapsed_s,
        "per_s": (done_last - done_first) / elapsed_s if elapsed_s > 0 else None,
        "redis_cpu": (last_cpu_s - first_cpu_s) / elapsed_s if elapsed_s > 0 else None,
    }


def enqueue(installed: Installed, server: Server, *, tasks: int, mode: str) -> Figures:
    """Enqueue, with nobody consuming: ``bulk`` as fast as it goes, ``single`` one awaited call at a time."""
    server.client.flushall()
    cpu_s = server.cpu_s()
    figures = processes.produce(installed, server, mode, tasks, limit_s=PRODUCE_LIMIT_S)
    # The producer's start-up costs Redis next to nothing, so all that it used belongs to the timed part.
    cpu_s = server.cpu_s() - cpu_s
    waiting = installed.peer.remaining(server.client, tasks)
    if waiting != tasks:
        raise ProgramFailed(f"{waiting} of {tasks} enqueued tasks are in the queue")
    return {
        "tasks": tasks,
        "seconds": figures["seconds"],
        "per_s": tasks / figures["seconds"],
        "redis_cpu": cpu_s / figures["seconds"],
    }


def memory(installed: Installed, server: Server, *, tasks: int) -> Figures:
    """What one waiting task takes in Redis, indexes and all: the same number of tasks for every queue."""
    server.client.flushall()
    before = server.used_memory()
    processes.produce(installed, server, "bulk", tasks, limit_s=PRODUCE_LIMIT_S)
    time.sleep(SETTLE_S)
    return {"tasks": tasks, "bytes_per_task": (server.used_memory() - before) / tasks}


def latency(installed: Installed, server: Server, *, samples: int, limit_s: float) -> Figures:
    """One task at a time on an idle queue: from the call of enqueue to the first line of the handler."""
    server.client.flushall()
    with processes.workers(installed, server, 1) as running:
        cpu_s, started_s = server.cpu_s(), time.monotonic()
        try:
            figures = processes.produce(
                installed, server, "latency", samples, math.ceil(limit_s), limit_s=START_LIMIT_S + limit_s
            )
        except ProgramFailed as error:
            raise ProgramFailed(f"{error}\nworker: {running.log_tail()}") from None
        elapsed_s = time.monotonic() - started_s
        taken = sorted(value / 1e6 for value in figures["latencies_ns"])
        return {
            "samples": len(taken),
            "p50_ms": statistics.median(taken),
            "p99_ms": taken[min(len(taken) - 1, math.ceil(len(taken) * 0.99) - 1)],
            "redis_cpu": (server.cpu_s() - cpu_s) / elapsed_s,
        }


def idle(installed: Installed, server: Server, *, seconds: float) -> Figures:
    """The commands that one worker with nothing to do sends."""
    server.client.flushall()
    with processes.workers(installed, server, 1) as running:
        # A few tasks first: a worker that has never worked is not what idles in production.
        processes.produce(installed, server, "latency", 1, 1, limit_s=START_LIMIT_S)
        time.sleep(2.0)
        cpu_s = server.cpu_s()
        sent = _commands_sent(server, seconds)
        cpu_s = server.cpu_s() - cpu_s
        running.check()
    return {
        "seconds": seconds,
        "commands_per_s": sum(sent.values()) / seconds,
        "commands": dict(sorted(sent.items(), key=lambda item: -item[1])),
        "redis_cpu": cpu_s / seconds,
    }


def _commands_sent(server: Server, seconds: float) -> dict[str, int]:
    """What clients send, by command. MONITOR marks what a script calls, so that only requests are counted."""
    counts: dict[str, int] = {}
    with socket.create_connection((HOST, server.port)) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        for line in _lines(monitor, time.monotonic() + seconds):
            # +1700000000.000001 [0 127.0.0.1:50000] "GET" "key"; from a script it is [0 lua]
            where, bracket, command = line.partition("] ")
            if bracket and not where.endswith(" lua"):
                name = command.split(" ", 1)[0].strip('"').upper()
                counts[name] = counts.get(name, 0) + 1
    return counts


def _lines(connection: socket.socket, until_s: float) -> Iterator[str]:
    rest = b""
    while (left_s := until_s - time.monotonic()) > 0:
        connection.settimeout(left_s)
        try:
            received = connection.recv(65536)
        except TimeoutError:
            return
        if not received:
            raise ProgramFailed("Redis ended the MONITOR connection")
        *lines, rest = (rest + received).split(b"\r\n")
        yield from (line.decode(errors="replace") for line in lines)
