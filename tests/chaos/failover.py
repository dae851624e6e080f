"""Load that outlives failovers, and the account of it afterwards.

Several loads run at once on the same servers, each with promises of its own (the options in its URL), so that one
series of faults judges them all.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from headrace import Headrace, HeadraceError, TaskNotFound, TaskState
from headrace.queue.cancelling import cancel_and_wait
from tests.chaos import failover_app
from tests.support.redis_server import RedisServer
from tests.support.topology import Installation
from tests.support.worker_process import WorkerProcess

BATCH = 5
PAUSE_S = 0.05
FLOW = 50
STEP_S = 0.01
_ASKED_AT_ONCE = 50


@dataclass
class Account:
    """What became of the tasks of one load."""

    name: str
    confirmed: int = 0
    refused: int = 0
    lost: int = 0
    """Confirmed, never executed, and not in Redis any more."""
    record_lost: int = 0
    """Confirmed and executed; then everything Redis knew of it was lost, its result included."""
    ran_again: int = 0
    """Done more than once, because a failover forgot the settle (or the claim) of the first time."""
    settled_twice: int = 0
    lost_after_s: list[float] = field(default_factory=list)
    """For each lost task or record: when it was confirmed, counted from the fault before or just after it."""
    longest_silence_s: float = 0.0
    """The longest time between two confirmed calls: how long a failover keeps producers waiting."""
    took_s: float = 0.0

    def __str__(self) -> str:
        when = ""
        if self.lost_after_s:
            when = f", confirmed {min(self.lost_after_s):+.1f} to {max(self.lost_after_s):+.1f} s from the fault"
        return (
            f"{self.name}: {self.confirmed} confirmed, {self.refused} calls refused, {self.lost} tasks and "
            f"{self.record_lost} records lost{when}, {self.ran_again} done again, "
            f"{self.settled_twice} settled twice, longest silence {self.longest_silence_s:.1f} s"
        )


class Load:
    """One producer and one worker process that go on through all failovers. Use it as an async context manager."""

    def __init__(self, name: str, servers: Installation, marks: RedisServer, tenant: str, options: str = "") -> None:
        self.name = name
        self.tenant = tenant
        self.app = Headrace(servers.url + options, tenant=tenant, queues=failover_app.app.declared_queues)
        self.confirmed_at_s: dict[str, float] = {}
        self.refused = 0
        self._servers = servers
        self._marks = marks
        self._options = options
        self._worker: WorkerProcess | None = None
        self._producing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._worker = WorkerProcess(
            self._servers,
            self.tenant,
            *("--concurrency", "10", "--log-level", "error"),
            app="tests.chaos.failover_app:app",
            options=self._options,
            marks_url=self._marks.url,
        )
        self._producing = asyncio.create_task(self._produce())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producing is not None:
            self._producing.cancel()
        if self._worker is not None:
            self._worker.__exit__(kind, error, trace)
        await self.app.aclose()

    @property
    def worker(self) -> WorkerProcess:
        assert self._worker is not None
        return self._worker

    async def _produce(self) -> None:
        task = self.app.remote("step", queue="jobs")
        while True:
            try:
                handles = await self.app.enqueue_many([task.call(STEP_S) for _ in range(BATCH)])
            except HeadraceError:
                self.refused += 1
            else:
                now_s = time.monotonic()
                self.confirmed_at_s.update((handle.id, now_s) for handle in handles)
            await asyncio.sleep(PAUSE_S)

    async def flows(self, patience_s: float = 60.0) -> None:
        """Wait until tasks are confirmed and done again: a fault that meets nobody at work proves little."""
        deadline_s = time.monotonic() + patience_s
        confirmed, done = len(self.confirmed_at_s), self._done()
        while len(self.confirmed_at_s) < confirmed + FLOW or self._done() < done + FLOW:
            more = f"{len(self.confirmed_at_s) - confirmed} tasks were confirmed and {self._done() - done} done"
            assert time.monotonic() < deadline_s, f"{self.name}: {more} in {patience_s:g} s\n{self.worker.log()}"
            await asyncio.sleep(0.05)

    def _done(self) -> int:
        with self._marks.client() as client:
            count: Any = client.hlen(failover_app.executions_key(self.tenant))
        return int(count)

    async def stop_producing(self) -> None:
        assert self._producing is not None
        await cancel_and_wait(self._producing)
        assert self._producing.cancelled(), f"{self.name}: the producer died of {self._producing.exception()!r}"

    async def account(self, faults_at_s: Iterable[float], patience_s: float = 90.0) -> Account:
        """Let everything run dry, then look for every confirmed task."""
        deadline_s = time.monotonic() + patience_s
        while any(left := await self._left()):
            in_words = "waiting {}, executing {}, delayed {}, dead {}".format(*left)
            assert time.monotonic() < deadline_s, f"{self.name}: {in_words} after {patience_s:g} s"
            await asyncio.sleep(0.2)
        assert self.worker.running, f"{self.name}: the worker did not survive\n{self.worker.log()}"
        stats = await self.app.stats("jobs")
        with self._marks.client() as client:
            raw: Any = client.hgetall(failover_app.executions_key(self.tenant))
        executions = {task_id.decode(): int(times) for task_id, times in raw.items()}
        times_s = sorted(self.confirmed_at_s.values())
        account = Account(
            self.name,
            confirmed=len(times_s),
            refused=self.refused,
            ran_again=sum(times > 1 for times in executions.values()),
            settled_twice=stats.counters["completed"] - stats.finished,
            longest_silence_s=max(after - before for before, after in itertools.pairwise(times_s)),
        )
        faults = sorted(faults_at_s)
        for task_id in await self._missing():
            if task_id in executions:
                account.record_lost += 1
            else:
                account.lost += 1
            account.lost_after_s.append(_since_fault_s(self.confirmed_at_s[task_id], faults))
        return account

    async def _left(self) -> tuple[int, int, int, int]:
        stats = await self.app.stats("jobs")
        return stats.waiting, stats.executing, stats.delayed, stats.dead_letter

    async def _missing(self) -> list[str]:
        """The confirmed tasks that are not completed; nothing is waiting any more, so they are not there at all."""
        ids = list(self.confirmed_at_s)
        missing: list[str] = []
        for start in range(0, len(ids), _ASKED_AT_ONCE):
            group = ids[start : start + _ASKED_AT_ONCE]
            states = await asyncio.gather(*(self._state(task_id) for task_id in group))
            missing += [task_id for task_id, state in zip(group, states, strict=True) if state is None]
            assert {state for state in states if state} <= {TaskState.COMPLETED}, f"{self.name}: {states}"
        return missing

    async def _state(self, task_id: str) -> TaskState | None:
        try:
            return await self.app.handle("jobs", task_id).state()
        except TaskNotFound:
            return None


def _since_fault_s(confirmed_at_s: float, faults_at_s: list[float]) -> float:
    """Seconds from the nearest fault that can be to blame: one before it, or one that came right after it."""
    return min((confirmed_at_s - fault_s for fault_s in faults_at_s), key=abs)
