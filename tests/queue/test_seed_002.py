"""The queue with ten tiers that tenants share by name only (``examples/seed_002_tenants.py``)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from examples.seed_002_tenants import CONFIG, MAX_ATTEMPTS
from headrace.model.errors import TaskNotFound, UnknownQueue
from headrace.model.outcomes import Outcome, SettleStatus
from headrace.model.states import TaskState
from tests.support.bench import WORKER, Bench, new_task, open_bench

INSPECT_LIMIT = 200
RESCUER = "worker-2"


@pytest.fixture
async def bench(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG, WORKER, RESCUER) as bench:
        yield bench


@pytest.fixture
async def neighbour(frozen_redis, tenant) -> AsyncIterator[Bench]:
    """The queue of the same name of another tenant."""
    async with open_bench(frozen_redis, f"{tenant}-b", CONFIG, WORKER) as bench:
        yield bench


# ── tenants ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_id_in_two_tenants_is_two_tasks(bench, neighbour):
    task = new_task(idempotency_key="order-1")
    (ours,) = await bench.queue.enqueue([task])
    (theirs,) = await neighbour.queue.enqueue([task])
    assert not ours.duplicate
    assert not theirs.duplicate

    claimed = await bench.claim_one()
    await bench.complete(claimed)
    assert await bench.state(task.task_id) is TaskState.COMPLETED
    assert await neighbour.state(task.task_id) is TaskState.QUEUED
    assert (await neighbour.claim_one()).task_id == task.task_id


async def test_a_worker_claims_from_its_own_tenant_only(bench, neighbour):
    await bench.put(count=3)
    assert await neighbour.claim(10) == []
    assert len(await bench.claim(10)) == 3


async def test_a_token_of_one_tenant_settles_nothing_in_another(bench, neighbour):
    task = new_task()
    await bench.queue.enqueue([task])
    await neighbour.queue.enqueue([task])
    claimed = await bench.claim_one()
    assert await neighbour.settle(claimed, Outcome.COMPLETED) is SettleStatus.LOST
    assert await neighbour.state(task.task_id) is TaskState.QUEUED


async def test_a_foreign_task_cannot_be_found_cancelled_or_replayed(bench, neighbour):
    task_id = await bench.put_one()
    with pytest.raises(TaskNotFound, match=task_id):
        await neighbour.record(task_id)
    with pytest.raises(TaskNotFound):
        await neighbour.inspector.position(task_id)
    assert await neighbour.queue.cancel([task_id]) == ["not_found"]
    assert await neighbour.queue.replay([task_id]) == ([], [(task_id, "not_found")])
    assert await bench.state(task_id) is TaskState.QUEUED


async def test_nothing_a_tenant_does_touches_a_key_of_another(bench, neighbour):
    await neighbour.put(count=3)
    await neighbour.claim(1)
    before = neighbour.dump()

    ids = await bench.put(count=6, max_retries=0)
    tasks = await bench.claim(4)
    await bench.complete(tasks[0])
    await bench.fail_attempt(tasks[1])
    await bench.queue.cancel(ids)
    await bench.queue.replay()
    await bench.queue.pause()
    await bench.queue.drain([WORKER], force=True)
    await bench.queue.reclaim()
    await bench.queue.purge()
    await bench.queue.promote(force=True)

    assert neighbour.dump() == before


async def test_every_key_of_a_queue_carries_its_tenant(bench):
    before = {key for key in bench.raw.scan_iter(count=1000) if bench.tenant.encode() in key}
    await bench.put(capabilities="gpu", idempotency_key="order-1")
    await bench.put(delay_s=5)
    await bench.complete(await put_and_claim(bench))
    after = {key for key in bench.raw.scan_iter(count=1000) if bench.tenant.encode() in key}
    assert after > before
    names = f"hr:{{{bench.tenant}}}:queues".encode()
    assert all(key.startswith(f"hr:{{{bench.tenant}/commands}}:".encode()) for key in after - {names})


async def put_and_claim(bench: Bench):
    await bench.put("9")
    return await bench.claim_one()


async def test_a_queue_that_a_tenant_has_not_defined_is_unknown_to_it(frozen_redis, bench):
    stranger = Bench(frozen_redis, bench.transport, f"{bench.tenant}-c", CONFIG)
    with pytest.raises(UnknownQueue, match=r"^queue: 'commands' is not defined for tenant "):
        await stranger.put()
    with pytest.raises(UnknownQueue):
        await stranger.claim()
    with pytest.raises(UnknownQueue):
        await stranger.inspector.stats()
    assert stranger.dump() == {}
    stranger.raw.close()


# ── tiers ────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_higher_tier_is_always_looked_at_first(bench):
    tiers = [str(tier) for tier in range(10)] * 3
    random.Random(5).shuffle(tiers)
    for tier in tiers:
        await bench.put(tier)
        bench.clock.advance(1)
    received = [(await bench.claim_one()).level for _ in tiers]
    assert received == sorted(tiers, reverse=True)


async def test_a_late_task_in_tier_nine_overtakes_everything_below(bench):
    for tier in range(9):
        await bench.put(str(tier))
    bench.clock.advance(3600)
    urgent = await bench.put_one("9")
    assert (await bench.claim_one()).task_id == urgent


# ── claim, lease and repair ──────────────────────────────────────────────────────────────────────────


async def test_a_claim_records_the_worker_and_the_end_of_the_lease(bench):
    task_id = await bench.put_one()
    await bench.claim_one()
    record = await bench.record(task_id)
    assert (record.state, record.worker, record.started_at_s) == (TaskState.EXECUTING, WORKER, bench.now_s)
    assert bench.score("leases", task_id) == bench.clock.now_us + 30_000_000
    assert bench.score("ready:5:", task_id) is None


async def test_a_lease_that_ran_out_is_found_by_the_next_claim_and_requeued_with_backoff(bench):
    task_id = await bench.put_one()
    await bench.claim_one()

    bench.clock.advance_us(30_000_000 - 1)
    assert await bench.claim(1, worker=RESCUER) == []
    assert await bench.state(task_id) is TaskState.EXECUTING

    bench.clock.advance_us(1)
    assert await bench.claim(1, worker=RESCUER) == []
    record = await bench.record(task_id)
    assert (record.state, record.retry_count, record.worker) == (TaskState.RETRYING, 1, None)
    assert bench.score("delayed", task_id) == bench.clock.now_us + 1_000_000

    bench.clock.advance(1)
    assert (await bench.claim_one(worker=RESCUER)).task_id == task_id


async def test_one_claim_repairs_at_most_the_inspect_limit_of_leases(bench):
    await bench.put(count=INSPECT_LIMIT + 50)
    await bench.claim(INSPECT_LIMIT + 50)
    bench.clock.advance(30)
    assert await bench.claim(1, worker=RESCUER) == []
    stats = await bench.inspector.stats()
    assert (stats.executing, stats.delayed) == (50, INSPECT_LIMIT)
    assert await bench.claim(1, worker=RESCUER) == []
    stats = await bench.inspector.stats()
    assert (stats.executing, stats.delayed) == (0, INSPECT_LIMIT + 50)


async def test_one_claim_forwards_at_most_the_inspect_limit_of_due_tasks(bench):
    await bench.put(count=INSPECT_LIMIT + 50, delay_s=10)
    bench.clock.advance(10)
    assert len(await bench.claim(1000)) == INSPECT_LIMIT
    assert (await bench.inspector.stats()).delayed == 50
    assert len(await bench.claim(1000)) == 50


@pytest.mark.parametrize("how", ["lease", "nack"])
async def test_after_the_last_attempt_the_task_is_dead_lettered(bench, how):
    task_id = await bench.put_one()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        task = await bench.claim_one()
        assert task.attempt == attempt
        if how == "lease":
            bench.clock.advance(CONFIG.lease_s)
            assert (await bench.queue.reclaim())[0] == 1
        else:
            await bench.fail_attempt(task)
        expected = TaskState.RETRYING if attempt < MAX_ATTEMPTS else TaskState.DEAD_LETTER
        assert await bench.state(task_id) is expected
        # Long enough for the backoff, too short for anything else; the worker lives on.
        bench.clock.advance(CONFIG.retry.max_s)
        await bench.register()
    record = await bench.record(task_id)
    assert (record.reason, len(record.history)) == ("max_retries_exceeded", MAX_ATTEMPTS)
    assert await bench.claim(1) == []


async def test_an_acknowledged_task_leaves_the_leases_and_is_never_repaired(bench):
    task_id = await bench.put_one()
    await bench.complete(await bench.claim_one())
    assert bench.score("leases", task_id) is None
    bench.clock.advance(CONFIG.lease_s * 2)
    assert await bench.claim(1, worker=RESCUER) == []
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.COMPLETED, 0)


# ── delay ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_delayed_task_is_scored_by_its_visible_time_and_invisible_until_then(bench):
    task_id = await bench.put_one("9", delay_s=60)
    assert bench.score("delayed", task_id) == bench.clock.now_us + 60_000_000
    assert await bench.state(task_id) is TaskState.SCHEDULED
    bench.clock.advance_us(60_000_000 - 1)
    assert await bench.claim(1) == []
    bench.clock.advance_us(1)
    assert (await bench.claim_one()).task_id == task_id


async def test_a_delayed_task_queues_up_from_the_moment_it_became_visible(bench):
    delayed = await bench.put_one(delay_s=10)
    bench.clock.advance(5)
    early = await bench.put_one()
    bench.clock.advance(10)
    late = await bench.put_one()
    assert [task.task_id for task in await bench.claim(3)] == [early, delayed, late]


# ── idempotency ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_key_returns_the_existing_task_within_the_window_and_a_new_one_after_it(bench):
    first, repeated, later = (new_task(idempotency_key="order-1") for _ in range(3))
    (original,) = await bench.queue.enqueue([first])
    assert (original.task_id, original.duplicate) == (first.task_id, False)
    assert bench.raw.pttl(bench.key("idempotency:order-1")) == CONFIG.idempotency_window_s * 1000

    bench.clock.advance(CONFIG.idempotency_window_s - 1)
    (existing,) = await bench.queue.enqueue([repeated])
    assert (existing.task_id, existing.duplicate) == (first.task_id, True)
    with pytest.raises(TaskNotFound):
        await bench.record(repeated.task_id)

    bench.clock.advance(2)
    (fresh,) = await bench.queue.enqueue([later])
    assert (fresh.task_id, fresh.duplicate) == (later.task_id, False)
    assert (await bench.inspector.stats()).waiting == 2


async def test_a_key_that_comes_twice_in_one_call_makes_one_task(bench):
    tasks = [new_task(idempotency_key="order-1"), new_task(), new_task(idempotency_key="order-1")]
    results = await bench.queue.enqueue(tasks)
    assert [(result.task_id, result.duplicate) for result in results] == [
        (tasks[0].task_id, False),
        (tasks[1].task_id, False),
        (tasks[0].task_id, True),
    ]
    assert (await bench.inspector.stats()).waiting == 2
