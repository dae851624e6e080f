"""Workers and producers whose clocks are an hour off, ahead and behind, against a Redis with the true time.

Every time that matters is Redis' own. So a delay, a retry, a timeout and a lease last as long as they should,
measured here on the machine's monotonic clock, which is the same for all processes and is not shifted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.chaos.drill import Drill, open_drill
from tests.chaos.drill_app import QUEUE
from tests.chaos.forms import sized
from tests.support.clock import shifted_clock
from tests.support.redis_server import RedisServer
from tests.support.worker_process import REPOSITORY

pytestmark = pytest.mark.drill

HOUR_S = 3600
OFFSETS_S = (HOUR_S, -HOUR_S)
LEASE_S = 3.0
DELAY_S, RETRY_S, TIMEOUT_S = 2.0, 1.5, 2.0
TASKS_PER_ROUND = 50
PATIENCE_S = 60.0
"""A loaded machine may be late by this much; a clock that is trusted wrongly would be late by an hour."""


@dataclass(frozen=True)
class Enqueued:
    """What the producer said."""

    ids: list[str]
    wall_clock_s: float
    before_s: float
    after_s: float


async def _enqueue(drill: Drill, offset_s: int, calls: list[tuple[str, list[Any], dict[str, Any]]]) -> Enqueued:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.skewed_producer"),
        cwd=REPOSITORY,
        env=os.environ | drill.worker_environment | shifted_clock(offset_s),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    drill.ledger.offered += len(calls)
    output, _ = await process.communicate(json.dumps(calls).encode())
    assert process.returncode == 0
    said = Enqueued(**json.loads(output))
    drill.ledger.confirmed += said.ids
    drill.producer.wanted += len(calls)
    return said


async def _enqueue_round(drill: Drill, offset_s: int) -> Enqueued:
    said = await _enqueue(
        drill,
        offset_s,
        [
            ("step", [0.0], {"delay_s": DELAY_S}),
            ("retry_later", [RETRY_S], {}),
            ("outlive_timeout", [], {"timeout_s": TIMEOUT_S}),
            ("step", [LEASE_S * 2.5], {}),
            *[("step", [0.0], {}) for _ in range(TASKS_PER_ROUND - 4)],
        ],
    )
    assert said.wall_clock_s - time.time() == pytest.approx(offset_s, abs=PATIENCE_S), "the producer's clock is true"
    return said


def _check_round(drill: Drill, said: Enqueued) -> None:
    """Nothing began before its time, or an hour after it."""
    drill.executions.read()
    assert drill.executions.begin_times_s is not None
    delayed, retried, timed_out, long, *others = (drill.executions.begin_times_s[task_id] for task_id in said.ids)
    assert len(delayed) == len(long) == 1, "no lease was lost"
    assert [len(times) for times in others] == [1] * len(others)
    assert DELAY_S <= delayed[0] - said.before_s <= DELAY_S + PATIENCE_S
    assert RETRY_S <= retried[1] - retried[0] <= RETRY_S + PATIENCE_S
    # The attempt is timed by Redis from its claim, which is a moment before its handler begins.
    assert TIMEOUT_S - 0.5 <= timed_out[1] - timed_out[0] <= TIMEOUT_S + PATIENCE_S
    drill.faults += len(said.ids)


async def _worker_clocks_off_by_s(drill: Drill) -> set[int]:
    """What the workers take for the time, in whole hours of difference."""
    task = drill.app.remote("wall_clock", queue=QUEUE)
    handles = await drill.ledger.enqueue(drill.app, [task.call() for _ in range(100)])
    drill.producer.wanted += len(handles)
    times_s = [(await handle.result(timeout_s=PATIENCE_S))["time_s"] for handle in handles]
    return {round((time_s - time.time()) / HOUR_S) * HOUR_S for time_s in times_s}


async def test_clock_skew(own_redis: RedisServer, tenant: str) -> None:
    rounds = sized(short=1, medium=3, long=40)
    kills = sized(short=2, medium=4, long=50)
    environments = [shifted_clock(offset_s) for offset_s in OFFSETS_S]
    async with open_drill(
        "clock_skew", own_redis, tenant, workers=2, lease_s=LEASE_S, environments=environments
    ) as drill:
        drill.executions.begin_times_s = {}
        drill.faults_wanted = rounds * len(OFFSETS_S) * TASKS_PER_ROUND
        assert await _worker_clocks_off_by_s(drill) == set(OFFSETS_S)
        for _ in range(rounds):
            produced = await asyncio.gather(*(_enqueue_round(drill, offset_s) for offset_s in OFFSETS_S))
            await drill.until(drill.all_settled, "not everything was completed")
            for said in produced:
                _check_round(drill, said)
        # Leases end when they should as well: what a killed worker held is taken over by the one with the other clock.
        for _ in range(kills):
            drill.producer.wanted += 100
            await drill.kill_a_busy_worker()
            # Until the other one has taken over. Without a pause a task would be met by one kill after the other.
            await drill.until(
                lambda: drill.executions.still_interrupted() == [], "a killed worker's task did not begin"
            )
        row = await drill.finish(
            "workers and producers are an hour ahead and an hour behind Redis",
            drill.faults,
            "from a worker's kill to the task's handler beginning again in the other",
        )
        assert drill.executions.still_interrupted() == []
    assert row.recovery_p99_s is not None
    assert row.recovery_p99_s <= LEASE_S + PATIENCE_S
