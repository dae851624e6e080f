"""Hundreds of workers that come at the same moment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.chaos.drill import Drill, open_drill
from tests.chaos.drill_app import QUEUE
from tests.chaos.forms import sized
from tests.support.redis_server import RedisServer
from tests.support.worker_process import REPOSITORY

pytestmark = pytest.mark.drill

POOL_SIZE = 2
# Per worker: a pool for the claim loop and one for the heartbeat, one connection to wait on, one to listen on.
CONNECTIONS_PER_WORKER = 2 * POOL_SIZE + 2
OTHER_CONNECTIONS = 30


@contextlib.contextmanager
def _workers(drill: Drill, processes: int, each: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    environment = os.environ | drill.worker_environment
    environment["HEADRACE_TEST_URL"] += f"?pool_size={POOL_SIZE}"
    started = []
    try:
        for _ in range(processes):
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.many_workers", str(each)],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.PIPE,
            )
            drill.executions.follow(process.pid)
            started.append(process)
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


async def test_many_workers(own_redis: RedisServer, tenant: str) -> None:
    processes, each = sized(short=4, medium=10, long=10), sized(short=25, medium=50, long=50)
    tasks = sized(short=1000, medium=5000, long=50_000)
    count = processes * each
    # Beating every second, as with the other drills' leases, five hundred workers would do little else.
    async with open_drill("many_workers", own_redis, tenant, workers=0, lease_s=30.0, batch=1000) as drill:
        drill.faults_wanted = count
        began_s = time.monotonic()
        with _workers(drill, processes, each) as started, own_redis.client() as client:
            await drill.until(lambda: drill.checker.workers >= count, f"{count} workers were not registered")
            drill.faults = count
            registered_s = time.monotonic() - began_s
            print(f"{count} workers were registered {registered_s:.1f} s after they were started", flush=True)
            drill.recoveries_s.append(registered_s)
            began_s = time.monotonic()
            drill.producer.wanted = tasks
            await drill.until(lambda: not drill.producer.behind, "not everything was enqueued")
            await drill.until(lambda: drill.checker.completed >= tasks, "not everything was completed")
            print(f"{tasks} tasks were completed in {time.monotonic() - began_s:.1f} s", flush=True)
            connections = client.info("clients")["connected_clients"]
            print(f"{connections} connections, {connections / count:.1f} for each worker", flush=True)
            assert connections <= count * CONNECTIONS_PER_WORKER + OTHER_CONNECTIONS
            row = await drill.finish(
                f"workers connect at once ({connections / count:.1f} connections each)",
                count,
                "from the start of the processes to the last worker being registered",
            )
            for process in started:
                assert process.stdin is not None
                process.stdin.close()
            await drill.until(lambda: all(process.poll() == 0 for process in started), "not all workers drained")
        assert await drill.app.workers(QUEUE) == [], "a worker that drained leaves no record"
    assert row.executed_again == 0
