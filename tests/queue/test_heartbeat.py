"""Heartbeats: the record of a worker, its leases and their limits."""

from __future__ import annotations

from headrace.model.ids import new_task_id
from headrace.model.outcomes import Outcome
from headrace.model.states import WorkerActivity, WorkerState
from tests.support.bench import CONFIG, WORKER


async def test_a_worker_is_recorded_with_all_it_said(bench):
    registered_s = bench.now_s
    bench.clock.advance(10)
    await bench.queue.heartbeat(WORKER, capacity=7, capabilities="gpu,ssd", version="1.2.3", host="node-a")
    record = await bench.worker()
    assert (record.state, record.activity, record.parked) == (WorkerState.ACTIVE, WorkerActivity.IDLE, False)
    assert (record.capacity, record.load, record.capabilities) == (7, 0, ("gpu", "ssd"))
    assert (record.version, record.host) == ("1.2.3", "node-a")
    assert (record.registered_at_s, record.heartbeat_at_s, record.idle_since_s) == (
        registered_s,
        bench.now_s,
        registered_s,
    )


async def test_a_worker_that_stopped_is_forgotten(bench):
    await bench.queue.heartbeat(WORKER, status="stopped")
    assert await bench.inspector.workers() == []
    assert bench.raw.exists(bench.keys.worker(WORKER), bench.keys.workers) == 0
    assert (await bench.ask()).status == "unregistered"


async def test_a_worker_that_stopped_with_a_task_in_hand_and_comes_back_is_not_busy_twice(bench):
    task_id = await bench.put_one()
    await bench.claim_one()
    await bench.queue.heartbeat(WORKER, status="stopped")
    assert (await bench.ask()).status == "unregistered"
    await bench.register()
    bench.clock.advance(CONFIG.lease_s)
    await bench.queue.reclaim()
    assert (await bench.worker()).load == 0
    bench.clock.advance(1)
    assert (await bench.claim_one()).task_id == task_id
    assert (await bench.worker()).load == 1
    assert await bench.queue.drain([WORKER]) == ["busy"]


async def test_progress_is_stored_for_the_holder_of_the_lease_only(bench):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    await bench.queue.heartbeat(WORKER, progress=[(task_id, task.token, '{"done":3}')])
    assert (await bench.record(task_id)).progress == {"done": 3}
    await bench.queue.heartbeat(WORKER, progress=[(task_id, task.token + 1, '{"done":9}')])
    assert (await bench.record(task_id)).progress == {"done": 3}


async def test_a_heartbeat_names_the_leases_that_are_lost(bench):
    await bench.put(count=3)
    held, handed_back, reclaimed = await bench.claim(3)
    await bench.settle(handed_back, Outcome.HANDED_BACK)
    bench.clock.advance(20)
    await bench.queue.heartbeat(WORKER, held=[(held.task_id, held.token)])
    bench.clock.advance(10)
    await bench.queue.reclaim()
    leases = [(task.task_id, task.token) for task in (held, handed_back, reclaimed)] + [(new_task_id(), 1)]
    reply = await bench.queue.heartbeat(WORKER, held=leases)
    assert reply.lost == [handed_back.task_id, reclaimed.task_id, leases[3][0]]


async def test_a_heartbeat_in_time_saves_a_lease_that_nobody_has_taken_back_yet(bench):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    bench.clock.advance(CONFIG.lease_s + 5)
    assert (await bench.queue.heartbeat(WORKER, held=[(task_id, task.token)])).lost == []
    assert (await bench.queue.reclaim())[0] == 0


async def test_a_lease_is_never_renewed_past_the_timeout_of_the_attempt(bench):
    task_id = await bench.put_one(timeout_s=40)
    ends_us = bench.clock.now_us + 40_000_000
    task = await bench.claim_one()
    bench.clock.advance(20)
    await bench.queue.heartbeat(WORKER, held=[(task_id, task.token)])
    assert bench.score("leases", task_id) == ends_us


async def test_a_lease_is_as_short_as_the_timeout(bench):
    task_id = await bench.put_one(timeout_s=5)
    await bench.claim_one()
    assert bench.score("leases", task_id) == bench.clock.now_us + 5_000_000


async def test_a_dead_worker_is_purged_an_hour_later(bench):
    bench.clock.advance(CONFIG.worker_dead_after_s)
    await bench.queue.reclaim()
    bench.clock.advance(3600)
    assert (await bench.queue.purge())[2] == 1
    assert await bench.inspector.workers() == []
