"""A keeper beside a real Redis, with no worker around that could do its work."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from headrace.model.config import Promotion, RetryPolicy
from headrace.model.figures import Pulse
from headrace.model.states import TaskState
from headrace.queue.bells import Bells
from headrace.queue.connection import Connection
from headrace.queue.inspection import Inspector
from headrace.queue.queue import Queue
from headrace.queue.settings import RedisSettings
from headrace_operator.controllers.keeper import Keeper, Room
from tests.support.bench import CONFIG, WORKER, Bench, open_bench
from tests.support.waiting import eventually

PATIENCE_S = 60.0
QUICK = msgspec.structs.replace(
    CONFIG,
    lease_s=1.0,
    heartbeat_s=0.4,
    worker_dead_after_s=1.5,
    result_retention_s=0.5,
    promotion_interval_s=1.0,
    promotions=(Promotion("low", "medium", after_s=0.5), Promotion("medium", "high", after_s=1.0)),
    retry=RetryPolicy(base_s=0.1, max_s=0.1),
)


@pytest.fixture
async def bench(any_redis, tenant):
    async with open_bench(any_redis, tenant, QUICK, WORKER) as found:
        yield found


class Kept:
    """A keeper at work, and how often it had news."""

    def __init__(self, bench: Bench, epoch: int) -> None:
        queue = Queue(bench.transport, bench.tenant, QUICK.name, epoch=epoch)
        self.news = 0
        self.keeper = Keeper(queue, Inspector(bench.transport, queue), self._changed)

    def _changed(self) -> None:
        self.news += 1


@contextlib.asynccontextmanager
async def kept(bench: Bench, epoch: int = 1):
    found = Kept(bench, epoch)
    task = asyncio.create_task(found.keeper.run())
    try:
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def comes_to(bench: Bench, task_id: str, *states: TaskState) -> None:
    async def has_come() -> bool:
        return await bench.state(task_id) in states

    await eventually(has_come, PATIENCE_S, f"the task did not become {' or '.join(states)}")


async def test_due_tasks_become_ready(bench):
    task = await bench.put_one("high", delay_s=0.5)
    assert await bench.state(task) is TaskState.SCHEDULED
    async with kept(bench):
        await comes_to(bench, task, TaskState.QUEUED)


async def test_the_task_of_a_silent_worker_is_taken_back_and_the_worker_counts_as_dead(bench):
    await bench.put_one()
    task = await bench.claim_one()
    async with kept(bench) as found:
        await comes_to(bench, task.task_id, TaskState.QUEUED)

        async def is_dead() -> bool:
            pulse = found.keeper.pulse
            return pulse is not None and (pulse.workers, pulse.workers_dead) == ((), 1)

        await eventually(is_dead, PATIENCE_S, "the silent worker was not found dead")
    assert (await bench.record(task.task_id)).retry_count == 1


async def test_an_orphan_is_found_and_returned(bench):
    await bench.put_one()
    task = await bench.claim_one()
    bench.raw.zrem(bench.key("leases"), task.task_id)
    async with kept(bench):
        await comes_to(bench, task.task_id, TaskState.QUEUED)
    assert (await bench.inspector.stats()).counters["orphans"] == 1


async def test_what_waits_long_is_promoted_to_the_top(bench):
    task = await bench.put_one("low")
    async with kept(bench) as found:

        async def is_at_the_top() -> bool:
            return (await bench.record(task)).effective_priority == "high"

        await eventually(is_at_the_top, PATIENCE_S, "the task was not promoted")

        async def is_counted() -> bool:
            return found.keeper.pulse is not None and found.keeper.pulse.promoted == 2

        await eventually(is_counted, PATIENCE_S, "the promotions were not counted")


async def test_ended_retention_is_purged(bench):
    await bench.put_one()
    await bench.complete(await bench.claim_one())
    async with kept(bench):

        async def is_gone() -> bool:
            return (await bench.inspector.stats()).finished == 0

        await eventually(is_gone, PATIENCE_S, "the finished task was not purged")


async def test_there_is_news_only_when_something_has_changed(bench):
    # A worker that falls silent, or a promotion, would be news.
    await bench.queue.heartbeat(WORKER, status="stopped")
    async with kept(bench) as found:
        await found.keeper.first_look.wait()
        assert found.news == 1
        await asyncio.sleep(2.5)
        assert found.news == 1
        await bench.put_one("high")

        async def has_news() -> bool:
            return found.news == 2

        await eventually(has_news, PATIENCE_S, "a new task was no news")


async def test_it_ends_when_a_later_leader_has_spoken(bench):
    found = Kept(bench, epoch=4)
    later = Queue(bench.transport, bench.tenant, QUICK.name, epoch=5)
    await later.define(QUICK, owner="operator", generation=1, holder="shop/orders/1")
    async with asyncio.timeout(PATIENCE_S):
        await found.keeper.run()
    assert "a newer leader" in str(found.keeper.problem)
    assert found.keeper.pulse is None


async def test_a_queue_that_is_gone_is_a_problem_and_no_figure_is_made_up(bench):
    async with kept(bench) as found:
        await found.keeper.first_look.wait()
        known = found.keeper.pulse
        assert known is not None
        await bench.queue.wipe()

        async def is_forgotten() -> bool:
            return found.keeper.is_forgotten

        await eventually(is_forgotten, PATIENCE_S, "it was not noticed")
        assert found.keeper.pulse is known
        await bench.queue.define(QUICK)

        async def is_well() -> bool:
            return found.keeper.problem is None

        await eventually(is_well, PATIENCE_S, "it did not come right")


# ── the bell ─────────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def within_earshot(bench: Bench, found: Kept):
    """The keeper hears the queue's bell."""
    connection = Connection(RedisSettings.from_url(bench.server.url))
    await connection.open()
    bells = Bells(connection)
    bells.listen(bench.keys, found.keeper.heard)
    try:
        yield
    finally:
        await bells.aclose()
        await connection.aclose()


async def room(bench: Bench) -> int | None:
    return (await bench.inspector.pulse()).room


async def test_the_bell_is_hung_for_the_pool_with_the_least_room_and_taken_down_with_the_last(bench):
    async with kept(bench) as found:
        await found.keeper.leave_room("one", Room(7, 0, 3.0), at_once=False)
        await found.keeper.leave_room("two", Room(4, 0, 3.0), at_once=False)
        await found.keeper.leave_room("fixed", Room(None, 0, 3.0), at_once=False)
        await becomes(bench, 4)
        found.keeper.forget_pool("two")
        await becomes(bench, 7)
        found.keeper.forget_pool("one")
        await becomes(bench, None)


async def becomes(bench: Bench, expected: int | None) -> None:
    async def is_so() -> bool:
        return await room(bench) == expected

    await eventually(is_so, PATIENCE_S, f"the bell's room did not become {expected}")


async def test_a_bell_that_rings_is_news(bench):
    async with kept(bench) as found, within_earshot(bench, found):
        await found.keeper.leave_room("pool", Room(2, 0, 3.0), at_once=True)
        assert await room(bench) == 2
        await bench.put(count=3)

        async def has_seen() -> bool:
            return found.keeper.pulse is not None and found.keeper.pulse.depth == 3

        await eventually(has_seen, PATIENCE_S, "the keeper has not looked")
        assert found.news > 0
        assert found.keeper.take_ring() is not None
        assert found.keeper.take_ring() is None


async def test_too_little_room_from_the_beginning_is_looked_at_again(bench):
    async with kept(bench) as found:
        await bench.put(count=3)
        looked_at_s = found.keeper.felt_at_s
        await found.keeper.leave_room("pool", Room(2, 0, 3.0), at_once=True)

        async def looked_again() -> bool:
            return found.keeper.felt_at_s > looked_at_s

        await eventually(looked_again, PATIENCE_S, "the keeper has not looked again")
        assert await room(bench) is None


class Bystander(Inspector):
    """Looks at the keeper's figures at the moment at which the answer to its next question is there."""

    def __init__(self, bench: Bench, queue: Queue) -> None:
        super().__init__(bench.transport, queue)
        self.keeper: Keeper | None = None
        self.seen: list[tuple[float | None, float]] = []

    async def pulse(self, *, soon_s: float = 0.0) -> Pulse:
        answer = await super().pulse(soon_s=soon_s)
        if self.keeper is not None:
            known = self.keeper.pulse
            self.seen.append((None if known is None else known.at_s, self.keeper.felt_at_s))
        return answer


async def test_a_pulse_is_never_taken_for_a_younger_one(bench):
    queue = Queue(bench.transport, bench.tenant, QUICK.name, epoch=1)
    bystander = Bystander(bench, queue)
    keeper = bystander.keeper = Keeper(queue, bystander, lambda: None)
    task = asyncio.create_task(keeper.run())
    try:

        async def has_looked_often() -> bool:
            keeper.ring()
            return len(bystander.seen) >= 5

        await eventually(has_looked_often, PATIENCE_S, "the keeper has not looked")
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    ages: dict[float | None, set[float]] = {}
    for pulse_at_s, felt_at_s in bystander.seen:
        ages.setdefault(pulse_at_s, set()).add(felt_at_s)
    assert all(len(felt) == 1 for felt in ages.values())
    assert ages[None] == {0.0}


async def test_tasks_that_are_due_when_a_worker_could_be_there_are_counted(bench):
    async with kept(bench) as found:
        await found.keeper.leave_room("pool", Room(0, 0, 300.0), at_once=False)
        await bench.put(delay_s=200.0)

        async def is_counted() -> bool:
            return found.keeper.pulse is not None and found.keeper.pulse.due_soon == 1

        await eventually(is_counted, PATIENCE_S, "the delayed task was not counted")
