"""The drill: producers, workers that are replaced when they die, and the checker."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from headrace import Headrace, HeadraceError, TaskState
from headrace.model.task import TaskRecord
from tests.chaos import drill_app
from tests.support.redis_server import RedisServer
from tests.support.worker_process import WorkerProcess

LONG = os.environ.get("HEADRACE_DRILL") == "long"


def by_length(short: int, long: int) -> int:
    """How much of something: the short form runs with every test, the long one with ``make drill``."""
    return long if LONG else short


class Drill:
    """One queue under fire. Use it as an async context manager."""

    def __init__(self, server: RedisServer, tenant: str, *, workers: int = 2, concurrency: int = 10) -> None:
        self.server = server
        self.tenant = tenant
        self.app = Headrace(server.url, tenant=tenant, queues=drill_app.app.declared_queues)
        self.confirmed: list[str] = []
        self.workers: list[WorkerProcess] = []
        self._arguments = ("--concurrency", str(concurrency), "--grace", "5", "--log-level", "error")
        self._count = workers
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.workers = [self._new_worker() for _ in range(self._count)]
        self._keeper = asyncio.create_task(self._replace_the_dead())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        for worker in self.workers:
            worker.__exit__(kind, error, trace)
        await self.app.aclose()

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(self.server, self.tenant, *self._arguments, app="tests.chaos.drill_app:app")

    async def _replace_the_dead(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            for index, worker in enumerate(self.workers):
                if not worker.running:
                    worker.__exit__(None, None, None)
                    self.workers[index] = self._new_worker()

    async def busy_worker(self) -> WorkerProcess:
        """A worker that holds a task right now: a fault that meets an idle one proves little."""
        for _ in range(6000):
            with contextlib.suppress(HeadraceError):
                busy = [record.worker for record in await self.app.workers("jobs") if record.load > 0]
                found = [w for w in self.workers if w.running and any(f"-{w.pid}-" in name for name in busy)]
                if found:
                    return random.choice(found)
            await asyncio.sleep(0.02)
        raise AssertionError("no worker held a task for two minutes")

    # ── producing ────────────────────────────────────────────────────────────────────────────────────

    async def produce(self, count: int, *, seconds: float = 0.01, batch: int = 50) -> None:
        """Enqueue ``count`` tasks; what raises was not confirmed and is tried again as new tasks."""
        task = self.app.remote("step", queue="jobs")
        while count > 0:
            calls = [
                task.options(priority=random.choice(("high", "low"))).call(seconds) for _ in range(min(batch, count))
            ]
            try:
                handles = await self.app.enqueue_many(calls)
            except HeadraceError:
                await asyncio.sleep(0.2)
                continue
            self.confirmed += [handle.id for handle in handles]
            count -= len(calls)

    # ── checking ─────────────────────────────────────────────────────────────────────────────────────

    async def completed(self) -> int:
        """How many completions Redis has counted; 0 while it cannot be asked."""
        with contextlib.suppress(HeadraceError):
            return (await self.app.stats("jobs")).counters.get("completed", 0)
        return 0

    async def until_completed(self, count: int, patience_s: float = 600.0) -> None:
        deadline_s = time.monotonic() + patience_s
        while await self.completed() < count:
            assert time.monotonic() < deadline_s, f"{await self.completed()} of {count} completed in {patience_s:g} s"
            await asyncio.sleep(0.1)

    async def check(self) -> Report:
        """Every confirmed task is completed, each was settled once, and nothing is left anywhere."""
        await self.until_completed(len(self.confirmed))
        stats = await self.app.stats("jobs")
        records = [record async for record in self._records()]
        with self.server.client() as client:
            marks = [int(times) for times in client.hvals(drill_app.executions_key(self.tenant))]
        report = Report(
            tasks=len(self.confirmed),
            lost=sum(record.state is not TaskState.COMPLETED for record in records),
            settled_twice=stats.counters["completed"] - len(self.confirmed),
            executed_again=sum(times > 1 for times in marks),
            recoveries_s=list(_recoveries_s(records)),
        )
        assert (report.lost, report.settled_twice) == (0, 0), str(report)
        assert (stats.waiting, stats.executing, stats.delayed, stats.dead_letter) == (0, 0, 0, 0), str(report)
        return report

    async def _records(self) -> Any:
        for task_id in self.confirmed:
            yield await self.app.handle("jobs", task_id).record()


class Report:
    """What a drill found, for the table."""

    def __init__(
        self, *, tasks: int, lost: int, settled_twice: int, executed_again: int, recoveries_s: list[float]
    ) -> None:
        self.tasks = tasks
        self.lost = lost
        self.settled_twice = settled_twice
        self.executed_again = executed_again
        self.recoveries_s = sorted(recoveries_s)

    def recovery_s(self, percent: int) -> float:
        """From the last sign of life (a lease granted or renewed, at the earliest) to the task being taken back."""
        if not self.recoveries_s:
            return math.nan
        return self.recoveries_s[min(len(self.recoveries_s) - 1, len(self.recoveries_s) * percent // 100)]

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.lost} lost, {self.settled_twice} settled twice, "
            f"{self.executed_again} executed more than once, "
            f"attempts ended by a lost lease {len(self.recoveries_s)}, "
            f"held for p50 {self.recovery_s(50):.2f} s / p99 {self.recovery_s(99):.2f} s"
        )


def _recoveries_s(records: list[TaskRecord]) -> Iterator[float]:
    for record in records:
        for attempt in record.history:
            if attempt.reason == "lease_expired":
                yield attempt.ended_at_s - attempt.started_at_s
