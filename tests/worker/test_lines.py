"""Threads and processes with more jobs than there may be of them: the others stand in line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from headrace import Headrace
from headrace.worker.processes import HandlerCrashed, HandlerProcesses, JobSpec
from headrace.worker.threads import HandlerThreads
from headrace.worker.worker import Worker
from tests.support.waiting import eventually
from tests.worker import process_tasks

PATIENCE_S = 60.0
Running = Callable[..., AbstractAsyncContextManager[Worker]]


def _always() -> bool:
    return True


class Gate:
    """A handler that stays inside until it is let go, and counts."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self._lock = threading.Lock()
        self.inside = self.most_inside = self.came = 0

    def pass_through(self) -> None:
        with self._lock:
            self.came += 1
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        assert self.opened.wait(PATIENCE_S)
        with self._lock:
            self.inside -= 1

    async def has_inside(self, count: int) -> None:
        async def so_many() -> bool:
            return self.inside == count

        await eventually(so_many, timeout_s=PATIENCE_S)


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_more_threads_run_than_may_and_all_jobs_get_their_turn() -> None:
    threads, gate = HandlerThreads(2), Gate()
    jobs = [asyncio.create_task(threads.run(gate.pass_through, begin=_always)) for _ in range(10)]
    await gate.has_inside(2)
    gate.opened.set()
    await asyncio.gather(*jobs)
    assert (gate.came, gate.most_inside) == (10, 2)
    threads.close()


async def test_a_job_that_is_cancelled_in_line_never_begins() -> None:
    threads, gate, begun = HandlerThreads(1), Gate(), []
    first = asyncio.create_task(threads.run(gate.pass_through, begin=_always))
    await gate.has_inside(1)
    second = asyncio.create_task(threads.run(lambda: begun.append("second"), begin=_always))
    third = asyncio.create_task(threads.run(lambda: begun.append("third"), begin=_always))
    await asyncio.sleep(0)  # both stand in line
    second.cancel()
    gate.opened.set()
    await asyncio.gather(first, third)
    assert second.cancelled()
    assert begun == ["third"]
    threads.close()


async def test_a_job_that_may_not_begin_is_left_alone() -> None:
    threads = HandlerThreads(1)
    refused: list[str] = []
    waits = asyncio.create_task(threads.run(lambda: refused.append("ran"), begin=lambda: False))
    assert await threads.run(lambda: "done", begin=_always) == "done"
    assert refused == []
    waits.cancel()
    threads.close()


async def test_a_thread_that_is_left_behind_holds_nobody_up() -> None:
    threads, gate = HandlerThreads(1), Gate()
    stuck = asyncio.create_task(threads.run(gate.pass_through, begin=_always))
    await gate.has_inside(1)
    in_line = asyncio.create_task(threads.run(lambda: "in line", begin=_always))
    await asyncio.sleep(0)
    stuck.cancel()
    assert await in_line == "in line"
    assert await threads.run(lambda: "after", begin=_always) == "after"
    assert gate.inside == 1, "the first one is still there"
    gate.opened.set()
    threads.close()


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def _processes(most: int) -> AsyncIterator[HandlerProcesses]:
    processes = HandlerProcesses(most)
    try:
        yield processes
    finally:
        await processes.aclose()


def _run(processes: HandlerProcesses, name: str, *args: Any, heard: list[str] | None = None) -> asyncio.Task[Any]:
    context = {"task_id": "t", "type": name, "queue": "jobs", "tenant": "t", "attempt": 1, "timeout_s": 60.0}
    spec = JobSpec("tests.worker.process_tasks", name, list(args), {}, {**context, "level": "high", "traceparent": ""})
    on_progress = (lambda _: None) if heard is None else heard.append
    return asyncio.create_task(processes.run(spec, on_progress, begin=_always))


async def test_jobs_in_line_share_the_processes_there_may_be() -> None:
    async with _processes(2) as processes:
        answers = await asyncio.gather(*(_run(processes, "square", number) for number in range(20)))
        assert [answer["result"] for answer in answers] == [number * number for number in range(20)]
        assert len({answer["pid"] for answer in answers}) <= 2


async def test_a_process_that_dies_takes_only_its_own_job_along() -> None:
    async with _processes(1) as processes:
        crash, after = _run(processes, "crash"), _run(processes, "square", 3)
        with pytest.raises(HandlerCrashed, match="exit code 3"):
            await crash
        assert (await after)["result"] == 9


async def test_an_idle_process_that_was_killed_is_replaced() -> None:
    async with _processes(1) as processes:
        pid = (await _run(processes, "square", 1))["pid"]
        os.kill(pid, signal.SIGKILL)

        async def another_answers() -> bool:
            try:
                return bool((await _run(processes, "square", 2))["pid"] != pid)
            except HandlerCrashed:
                return False  # sent before the death was noticed

        await eventually(another_answers, timeout_s=PATIENCE_S)


async def test_a_cancelled_job_ends_with_its_process_and_the_line_goes_on() -> None:
    async with _processes(1) as processes:
        heard: list[str] = []
        running = _run(processes, "report_and_wait", heard=heard)
        in_line, last = _run(processes, "square", 4), _run(processes, "square", 5)

        async def has_begun() -> bool:
            return bool(heard)

        await eventually(has_begun, timeout_s=PATIENCE_S)
        in_line.cancel()
        running.cancel()
        assert (await last)["result"] == 25
        assert [job.cancelled() for job in (running, in_line)] == [True, True]


async def test_a_large_job_and_a_large_answer_get_through() -> None:
    async with _processes(1) as processes:
        text = "x" * 3_000_000
        assert await _run(processes, "echo", text) == text


# ── in a worker ──────────────────────────────────────────────────────────────────────────────────────────


async def test_what_stands_in_line_and_cannot_begin_goes_back_unspent(app: Headrace, running: Running) -> None:
    gate = Gate()

    @app.task(queue="jobs")
    def short() -> None:
        """Over at once: the worker learns that it pays to hold tasks ready."""

    @app.task(queue="jobs")
    def long() -> None:
        gate.pass_through()

    async with running(concurrency=2):
        for task in await app.enqueue_many([short.call() for _ in range(300)]):
            await task.result(PATIENCE_S)
        tasks = await app.enqueue_many([long.call() for _ in range(6)])

        async def only_two_are_held() -> bool:
            stats = await app.stats("jobs")
            return (stats.executing, stats.waiting) == (2, 4)

        await eventually(only_two_are_held, timeout_s=PATIENCE_S)
        gate.opened.set()
        for task in tasks:
            await task.result(PATIENCE_S)
            assert (await task.record()).retry_count == 0
    assert (gate.came, gate.most_inside) == (6, 2)


async def test_handlers_of_all_kinds_together_keep_to_the_concurrency(app: Headrace, running: Running) -> None:
    lock, inside, most_inside = threading.Lock(), 0, 0

    def enter() -> None:
        nonlocal inside, most_inside
        with lock:
            inside += 1
            most_inside = max(most_inside, inside)

    def leave() -> None:
        nonlocal inside
        with lock:
            inside -= 1

    @app.task(queue="jobs")
    async def in_loop() -> None:
        enter()
        await asyncio.sleep(0.002)
        leave()

    @app.task(queue="jobs")
    def in_thread() -> None:
        enter()
        threading.Event().wait(0.002)
        leave()

    process_tasks.register(app)
    square = app.remote("square", queue="jobs")
    async with running(concurrency=3):
        calls = [
            (in_loop.call(), in_thread.call(), in_thread.call(), square.call(2))[number * 7 // 3 % 4]
            for number in range(400)
        ]
        for task in await app.enqueue_many(calls):
            await task.result(PATIENCE_S)
    assert most_inside <= 3
    assert (await app.stats("jobs")).counters["completed"] == 400
    await app.aclose()
