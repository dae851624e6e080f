"""A drill: a queue, its workers, a producer, and the checker that looks all the while."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headrace import Headrace
from headrace.queue.cancelling import cancel_and_wait
from tests.chaos import report
from tests.chaos.checker import Accounts, Checker
from tests.chaos.drill_app import QUEUE, queue_config, worker_environment
from tests.chaos.fleet import Fleet
from tests.chaos.marks import Executions
from tests.chaos.producing import Ledger, Nap, Producer, mostly_short
from tests.support.redis_server import HOST, RedisServer
from tests.support.worker_process import WorkerProcess

_PROGRESS_EVERY_S = 5.0
_PATIENCE_S = 900.0
"""For anything to happen at all. No drill is about this time: it only ends a run that hangs."""


class Drill:
    """What a drill's test has in its hands. `open_drill` makes it."""

    def __init__(
        self,
        name: str,
        server: RedisServer,
        app: Headrace,
        checker_app: Headrace,
        ledger: Ledger,
        executions: Executions,
        checker: Checker,
    ) -> None:
        self.name = name
        self.server = server
        self.app = app
        self._checker_app = checker_app
        self.ledger = ledger
        self.executions = executions
        self.checker = checker
        self.fleet: Fleet
        self.producer: Producer
        self.worker_environment: dict[str, str]
        """For processes that a drill starts on its own."""
        self.faults = 0
        self.faults_wanted = 0
        self.recoveries_s: list[float] = []
        """Filled by drills whose recovery is not that of a task (see `Executions.recoveries_s`)."""
        self._started_s = time.monotonic()

    # ── while it runs ────────────────────────────────────────────────────────────────────────────────

    async def until(self, condition: Callable[[], bool], message: str, patience_s: float = _PATIENCE_S) -> None:
        """Wait for something that the checker or the marks will show."""
        deadline_s = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline_s, f"{message} within {patience_s:g} s; {self.progress()}"
            await asyncio.sleep(0.02)

    async def ask_for(self, tasks: int) -> None:
        """Have more tasks produced, once those of the last but one time are completed.

        Faults and tasks keep step this way. Faults that come faster leave nobody the time to do anything, and the
        recovery then measures the line that has formed.
        """
        enough = self.producer.wanted - tasks
        await self.until(lambda: self.checker.completed >= enough, f"{enough} tasks were not completed")
        self.producer.wanted += tasks

    async def first_completion(self) -> float:
        """Seconds from now until Redis counts one completion more than it does now."""
        began_s = time.monotonic()
        counted = await self._completed()
        while await self._completed() <= counted:
            assert time.monotonic() - began_s < _PATIENCE_S, f"nothing was completed; {self.progress()}"
            self._keep_busy()
            await asyncio.sleep(0.01)
        return time.monotonic() - began_s

    async def busy_worker(self) -> WorkerProcess:
        """The worker that runs the most handlers right now: a fault that meets an idle one proves little."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while (found := self.fleet.busiest()) is None:
            assert time.monotonic() < deadline_s, f"no worker ran a handler; {self.progress()}"
            self._keep_busy()
            await asyncio.sleep(0.005)
        return found

    async def kill_a_busy_worker(self) -> None:
        """A kill in the moment at which its last handler has ended does not count; then it is the next one's turn."""
        while not self.fleet.kill(await self.busy_worker()):
            pass

    def _keep_busy(self) -> None:
        if not self.producer.behind and self.all_settled():
            self.producer.wanted += 100

    async def _completed(self) -> int:
        return (await self._checker_app.stats(QUEUE)).counters.get("completed", 0)

    def progress(self) -> str:
        return (
            f"{self.name}: {time.monotonic() - self._started_s:.0f} s, faults {self.faults:,}/{self.faults_wanted:,}, "
            f"confirmed {len(self.ledger.confirmed):,}/{self.producer.wanted:,}, completed {self.checker.completed:,}, "
            f"again {len(self.executions.executed_again):,}, worker deaths {self.fleet.deaths:,}, "
            f"looks {self.checker.looks:,} ({self.checker.looks_in_vain:,} unanswered)"
        )

    def all_settled(self) -> bool:
        """Whether all that was confirmed was settled when the checker last looked."""
        return self.checker.settled >= self.checker.stored >= len(self.ledger.confirmed)

    # ── at the end ───────────────────────────────────────────────────────────────────────────────────

    async def settle(self) -> Accounts:
        """Let everything be worked off, then account for every task."""
        await self.until(lambda: not self.producer.behind, "not everything was enqueued")
        await self.until(self.all_settled, "not everything was settled")
        await self.checker.look()
        accounts = await self.checker.account()
        self.executions.read()
        await self.checker.check_attempts(self.executions.executed_again)
        assert self.checker.looks > 2, "the checker hardly looked: this drill proves nothing"
        return accounts

    async def finish(self, fault: str, times: int, recovery: str = "", *, dead: int = 0) -> report.Row:
        """Account for every task; all but ``dead`` of them are completed. Returns the row, which is kept."""
        accounts = await self.settle()
        assert (accounts.lost, accounts.settled_twice) == (0, 0), accounts
        assert (accounts.completed, accounts.dead) == (accounts.tasks - dead, dead), accounts
        recoveries_s = self.recoveries_s or self.executions.recoveries_s
        row = report.Row(
            drill=self.name,
            fault=fault,
            times=times,
            tasks=accounts.tasks,
            lost=accounts.lost,
            settled_twice=accounts.settled_twice,
            executed_again=len(self.executions.executed_again),
            recovery_p50_s=report.percentile(recoveries_s, 50) if recovery else None,
            recovery_p99_s=report.percentile(recoveries_s, 99) if recovery else None,
            recovery=recovery,
            took_s=round(time.monotonic() - self._started_s, 1),
        )
        report.write(row)
        return row


@contextlib.asynccontextmanager
async def open_drill(
    name: str,
    server: RedisServer,
    tenant: str,
    *,
    workers: int = 2,
    concurrency: int = 10,
    lease_s: float = 3.0,
    max_crashes: int = 1000,
    url: str | None = None,
    nap: Nap = mostly_short,
    batch: int = 100,
    backlog: int = 2000,
    environments: Sequence[Mapping[str, str]] = ({},),
    address_space_bytes: int | None = None,
    killed_above_bytes: int | None = None,
) -> AsyncIterator[Drill]:
    """Start everything; end it all when the block ends or the checker goes red, whichever comes first.

    ``url`` is where workers and the producer find Redis, if not where it is; the checker always goes straight to
    the server. ``max_crashes`` is high, because a fault that comes a thousand times may meet one task often.
    """
    config = queue_config(lease_s=lease_s, max_crashes=max_crashes)
    app = Headrace(url or server.url, tenant=tenant, queues=[config])
    checker_app = Headrace(f"{server.url}?command_timeout_s=5&pool_size=4", tenant=tenant, queues=[config])
    client = Redis(host=HOST, port=server.port, socket_timeout=5, protocol=2, retry=Retry(NoBackoff(), 0))
    ledger = Ledger()
    with tempfile.TemporaryDirectory(prefix="hr-marks-") as marks:
        executions = Executions(Path(marks))
        drill = Drill(name, server, app, checker_app, ledger, executions, Checker(checker_app, client, ledger))
        drill.producer = Producer(app, ledger, lambda: drill.checker.completed, nap=nap, batch=batch, backlog=backlog)
        drill.worker_environment = common = {
            **worker_environment(config, Path(marks)),
            "HEADRACE_TEST_URL": url or server.url,
            "HEADRACE_TEST_TENANT": tenant,
        }
        drill.fleet = Fleet(
            server,
            tenant,
            executions,
            size=workers,
            concurrency=concurrency,
            environments=[{**common, **own} for own in environments],
            address_space_bytes=address_space_bytes,
            killed_above_bytes=killed_above_bytes,
        )
        try:
            await checker_app.stats(QUEUE)  # defines the queue before anybody looks at it
            with drill.fleet:
                background = (
                    drill.checker.run(),
                    drill.fleet.keep(),
                    drill.producer.run(),
                    _read_marks(executions),
                    _show_progress(drill),
                )
                async with _beside(*background):
                    # A worker that does not reach Redis while it starts gives up; the faults are for those that run.
                    await drill.until(lambda: drill.checker.workers >= workers, "the workers did not start")
                    yield drill
        finally:
            await app.aclose()
            await checker_app.aclose()
            await client.aclose()


@contextlib.asynccontextmanager
async def _beside(*background: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these beside the block. One that fails ends the block, and is what comes out of it."""
    main = asyncio.current_task()
    assert main is not None
    failures: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)
            main.cancel()

    tasks = [asyncio.create_task(coroutine) for coroutine in background]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    except asyncio.CancelledError:
        if not failures:
            raise
        main.uncancel()
    finally:
        await cancel_and_wait(*tasks)
    if failures:
        raise failures[0]


async def _read_marks(executions: Executions) -> None:
    while True:
        executions.read()
        await asyncio.sleep(0.1)


async def _show_progress(drill: Drill) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_EVERY_S)
        print(drill.progress(), flush=True)
