"""The same handlers with no queue: what this machine and the worker's own machinery make of them.

``python -m benchmarks.own.bare KIND SECONDS CONCURRENCY FOR_SECONDS`` prints how many ran per second, and how much of
a core the calling process used for it, which leaves no more than the rest of that core to any queue. Handlers are
called as a worker calls them, from an event loop and there, in a thread or in a process, by as many loops as there are
slots. A sleep of a millisecond is not one: uvloop's timers count whole milliseconds, and threads and processes take
their time to wake up. What is missing beside this is what the queue costs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

import uvloop

from benchmarks.own.sleepers import KINDS
from headrace.app.tasks import Definition
from headrace.worker.processes import HandlerProcesses, JobSpec
from headrace.worker.threads import HandlerThreads

WARM_UP = 0.2
"""This part of the time is not counted."""


def main() -> None:
    """Run and print."""
    kind, seconds, concurrency, for_s = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    sys.stdout.write(json.dumps(uvloop.run(_measure(kind, seconds, concurrency, for_s))) + "\n")


async def _measure(kind: str, seconds: float, concurrency: int, for_s: float) -> dict[str, float]:
    threads, processes = HandlerThreads(concurrency), HandlerProcesses(concurrency)
    definition = KINDS[kind]

    def call() -> Coroutine[Any, Any, Any]:
        if definition.run_in == "loop":
            handled: Coroutine[Any, Any, Any] = definition.function(seconds)
            return handled
        if definition.run_in == "thread":
            return threads.run(partial(definition.function, seconds), begin=_always)
        return processes.run(_job(definition, seconds), lambda _: None, begin=_always)

    async def work(window: _Window) -> None:
        while window.is_open():
            # A task per call, as every worker must make one to be able to stop the handler.
            await asyncio.create_task(call())
            window.count()

    # Once before the clock starts: threads and processes are up.
    await asyncio.gather(*(call() for _ in range(concurrency)))
    windows = [_Window(for_s) for _ in range(concurrency)]
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(window) for window in windows))
    core = (time.process_time() - cpu_s) / (time.perf_counter() - began_s)
    threads.close()
    await processes.aclose()
    return {"per_s": sum(window.per_s() for window in windows), "core": core}


def _always() -> bool:
    return True


def _job(definition: Definition[Any, Any, Any], seconds: float) -> JobSpec:
    return JobSpec(
        module=definition.function.__module__,
        name=definition.function.__qualname__,
        args=[seconds],
        kwargs={},
        context={
            "task_id": "none",
            "type": definition.type,
            "queue": "none",
            "tenant": "none",
            "attempt": 1,
            "timeout_s": 300.0,
            "level": "none",
            "traceparent": "",
        },
    )


class _Window:
    """The time in which one slot's calls count: from the end of one after the warm-up to the end of the last.

    Each slot has its own. Slots end together, and a window over all of them would count a first turn for nothing.
    """

    def __init__(self, for_s: float) -> None:
        now_s = time.perf_counter()
        self._from_s, self._until_s = now_s + for_s * WARM_UP, now_s + for_s
        self._first_s = self._last_s = 0.0
        self._calls = -1

    def is_open(self) -> bool:
        return time.perf_counter() < self._until_s

    def count(self) -> None:
        now_s = time.perf_counter()
        if now_s >= self._from_s:
            if self._calls < 0:
                self._first_s = now_s
            self._calls += 1
            self._last_s = now_s

    def per_s(self) -> float:
        return self._calls / (self._last_s - self._first_s) if self._calls > 0 else 0.0


if __name__ == "__main__":
    main()
