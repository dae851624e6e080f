"""What an operator does with a queue: hold it, feel its pulse, look for orphans, let it go, wipe it."""

from __future__ import annotations

import msgspec
import pytest

from headrace.model.errors import Deposed, QueueHeld, UnknownQueue
from headrace.model.states import TaskState, WorkerState
from headrace.queue.keys import queue_names_key
from headrace.queue.queue import Queue
from tests.support.bench import CONFIG, OTHER, WORKER

HOLDER = "shop/orders/uid-1"


async def hold(bench, holder=HOLDER, *, epoch=1, generation=1, config=CONFIG):
    queue = Queue(bench.transport, bench.tenant, CONFIG.name, epoch=epoch)
    await queue.define(config, owner="operator", generation=generation, holder=holder)
    return queue


# ── holding ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_has_one_holder(bench):
    await hold(bench)
    before = bench.dump()
    with pytest.raises(QueueHeld, match=HOLDER):
        await hold(bench, "shop/others/uid-2")
    assert bench.dump() == before


async def test_who_is_not_heard_of_for_long_loses_the_queue(bench):
    await hold(bench)
    bench.clock.advance(89)
    with pytest.raises(QueueHeld):
        await hold(bench, "shop/others/uid-2")
    bench.clock.advance(2)
    await hold(bench, "shop/others/uid-2")
    with pytest.raises(QueueHeld, match="uid-2"):
        await hold(bench)


async def test_publishing_again_is_being_heard_of(bench):
    await hold(bench)
    bench.clock.advance(80)
    await hold(bench)
    bench.clock.advance(80)
    with pytest.raises(QueueHeld):
        await hold(bench, "shop/others/uid-2")


async def test_an_object_that_was_made_anew_takes_over_at_once_with_a_generation_of_its_own(bench):
    await hold(bench, generation=7)
    other = msgspec.structs.replace(CONFIG, lease_s=60)
    await hold(bench, "shop/orders/uid-2", generation=1, config=other)
    assert await bench.queue.config() == other


async def test_a_released_queue_keeps_its_tasks_and_is_the_apps_again(bench):
    queue = await hold(bench, config=msgspec.structs.replace(CONFIG, lease_s=60))
    task = await bench.put_one()
    await queue.release(HOLDER)
    assert await bench.state(task) is TaskState.QUEUED
    assert await bench.queue.define(CONFIG) == CONFIG
    await hold(bench, "shop/others/uid-2")


async def test_only_the_holder_releases(bench):
    queue = await hold(bench)
    with pytest.raises(QueueHeld):
        await queue.release("shop/others/uid-2")
    with pytest.raises(QueueHeld):
        await hold(bench, "shop/others/uid-2")


# ── terms ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_deposed_leader_changes_nothing(bench):
    former = await hold(bench, epoch=4)
    await hold(bench, epoch=5)
    await bench.put(count=2)
    bench.clock.advance(10_000)
    before = bench.dump()
    for call in (
        former.pause(),
        former.forward(),
        former.reclaim(),
        former.promote(force=True),
        former.purge(),
        former.drain([WORKER], force=True),
        former.audit(),
        former.wipe(),
        former.release(HOLDER),
        former.define(msgspec.structs.replace(CONFIG, lease_s=77), owner="operator", generation=99, holder=HOLDER),
    ):
        with pytest.raises(Deposed):
            await call
    assert {key: value for key, (value, _) in bench.dump().items()} == {
        key: value for key, (value, _) in before.items()
    }


async def test_the_same_term_goes_on_and_workers_have_none(bench):
    leader = await hold(bench, epoch=5)
    await leader.pause()
    await leader.resume()
    await bench.queue.reclaim()
    await bench.queue.promote(force=True)


# ── pulse ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pulse_of_an_empty_queue_has_nothing_due_but_the_next_promotion(bench):
    pulse = await bench.inspector.pulse()
    assert [name for name, _, _ in pulse.levels] == ["high", "medium", "low"]
    assert {(depth, oldest) for _, depth, oldest in pulse.levels} == {(0, None)}
    assert (pulse.executing, pulse.delayed, pulse.dead_letter, pulse.promoted) == (0, 0, 0, 0)
    assert (pulse.forward_at_s, pulse.purge_at_s) == (None, None)
    assert pulse.at_s == pytest.approx(bench.now_s)


async def test_a_pulse_says_what_waits_who_works_and_what_is_due_when(bench):
    await bench.register(OTHER, capacity=3)
    first = await bench.put_one("low")
    began_s = bench.now_s
    bench.clock.advance(5)
    await bench.put("low", count=2)
    await bench.put("high", delay_s=30.0)
    task = await bench.claim_one()
    assert task.task_id == first
    pulse = await bench.inspector.pulse()
    assert pulse.levels == (("high", 0, None), ("medium", 0, None), ("low", 2, pytest.approx(began_s + 5)))
    assert (pulse.executing, pulse.delayed) == (1, 1)
    assert pulse.forward_at_s == pytest.approx(bench.now_s + 30)
    assert pulse.reclaim_at_s == pytest.approx(bench.now_s + CONFIG.lease_s)
    workers = {worker.worker: (worker.state, worker.load, worker.capacity, worker.parked) for worker in pulse.workers}
    assert workers == {WORKER: (WorkerState.ACTIVE, 1, 5, False), OTHER: (WorkerState.ACTIVE, 0, 3, False)}
    assert not pulse.is_due(pulse.forward_at_s)
    bench.clock.advance(30)
    pulse = await bench.inspector.pulse()
    assert pulse.is_due(pulse.forward_at_s)
    assert pulse.is_due(pulse.reclaim_at_s)


async def test_a_silent_worker_is_due_even_when_no_lease_is(bench):
    pulse = await bench.inspector.pulse()
    assert pulse.reclaim_at_s == pytest.approx(bench.now_s + CONFIG.worker_dead_after_s)
    bench.clock.advance(CONFIG.worker_dead_after_s + 1)
    assert (await bench.queue.reclaim())[1] == [WORKER]
    pulse = await bench.inspector.pulse()
    assert (pulse.workers, pulse.workers_dead, pulse.reclaim_at_s) == ((), 1, None)
    assert pulse.purge_at_s == pytest.approx(bench.now_s + 3600)


async def test_the_retention_of_results_and_dead_letters_is_due(bench):
    await bench.put()
    await bench.complete(await bench.claim_one())
    assert (await bench.inspector.pulse()).purge_at_s == pytest.approx(bench.now_s + CONFIG.result_retention_s)


async def test_a_pulse_that_finds_nothing_new_has_equal_figures(bench):
    await bench.put(count=3)
    before = (await bench.inspector.pulse()).figures()
    bench.clock.advance(1)
    assert (await bench.inspector.pulse()).figures() == before
    await bench.put()
    assert (await bench.inspector.pulse()).figures() != before


async def test_promotions_are_counted_and_due_by_their_interval(bench):
    await bench.put("low", count=3)
    bench.clock.advance(601)
    pulse = await bench.inspector.pulse()
    assert pulse.is_due(pulse.promote_at_s)
    assert await bench.queue.promote() == {("low", "medium"): 3}
    pulse = await bench.inspector.pulse()
    assert pulse.promoted == 3
    assert pulse.promote_at_s == pytest.approx(bench.now_s + CONFIG.promotion_interval_s)


# ── orphans ──────────────────────────────────────────────────────────────────────────────────────────


async def audited(bench) -> int:
    cursor, found = "0", 0
    while True:
        cursor, some = await bench.queue.audit(cursor)
        found += some
        if cursor == "0":
            return found


async def test_a_task_that_executes_without_a_lease_is_found_and_treated_like_a_lost_one(bench):
    await bench.put(count=3)
    orphan, kept = await bench.claim(2)
    bench.raw.zrem(bench.key("leases"), orphan.task_id)
    assert await audited(bench) == 1
    bench.clock.advance(0.001)
    assert (await bench.queue.reclaim())[0] == 1
    assert await bench.state(orphan.task_id) is TaskState.RETRYING
    assert await bench.state(kept.task_id) is TaskState.EXECUTING
    assert (await bench.inspector.stats()).counters["orphans"] == 1
    assert (await bench.worker()).load == 1
    await bench.complete(kept)


async def test_a_healthy_queue_has_no_orphans_and_is_not_touched(bench):
    await bench.put(count=3)
    await bench.put("high", delay_s=60.0)
    await bench.claim(2)
    before = bench.dump()
    assert await audited(bench) == 0
    assert bench.dump() == before


# ── wiping ───────────────────────────────────────────────────────────────────────────────────────────


async def test_wiping_removes_every_key_of_the_queue_and_nothing_else(bench):
    neighbour = Queue(bench.transport, bench.tenant, "verbs-too")
    await neighbour.define(msgspec.structs.replace(CONFIG, name="verbs-too"))
    await bench.put(count=300, idempotency_key="")
    await bench.put_one(idempotency_key="once")
    await bench.claim(5)
    assert await bench.queue.wipe() >= 300
    assert bench.dump() == {}
    assert bench.raw.smembers(queue_names_key(bench.tenant)) == {b"verbs-too"}
    assert (await neighbour.config()).name == "verbs-too"
    with pytest.raises(UnknownQueue):
        await bench.put()


async def test_a_queue_is_wiped_for_its_holder_only(bench):
    queue = await hold(bench)
    await bench.put(count=3)
    before = bench.dump()
    with pytest.raises(QueueHeld, match=HOLDER):
        await queue.wipe("shop/others/uid-2")
    assert bench.dump() == before
    assert await queue.wipe(HOLDER) > 3
    assert bench.dump() == {}
    assert await queue.wipe(HOLDER) == 0


async def test_a_queue_that_nobody_holds_is_not_wiped_for_an_operator(bench):
    await bench.put(count=3)
    before = bench.dump()
    with pytest.raises(QueueHeld, match="nobody"):
        await bench.queue.wipe(HOLDER)
    assert bench.dump() == before


async def test_an_interrupted_wipe_can_be_taken_up_again(bench):
    queue = await hold(bench)
    await bench.put(count=300)
    await bench.run("wipe", {"cursor": "0", "count": 10, "holder": HOLDER})
    assert bench.dump() != {}
    with pytest.raises(UnknownQueue):
        await bench.put()
    await queue.wipe(HOLDER)
    assert bench.dump() == {}
