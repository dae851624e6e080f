"""What an operator does to tasks, queues and workers: cancel, pause and drain."""

from __future__ import annotations

import msgspec
import pytest

from headrace.model.errors import TaskNotFound
from headrace.model.ids import new_task_id
from headrace.model.outcomes import Outcome, SettleStatus
from headrace.model.states import TaskState, WorkerState
from tests.support.bench import CONFIG, OTHER, WORKER

# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.FAILED, Outcome.SNOOZED, Outcome.HANDED_BACK])
async def test_a_cancellation_wins_over_everything_but_a_result(bench, outcome):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    assert await bench.queue.cancel([task_id]) == ["cancelling"]
    assert await bench.settle(task, outcome, after_s=0) is SettleStatus.SETTLED
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.CANCELLED, 0)
    assert await bench.claim(1) == []


async def test_work_that_is_done_stays_done_although_it_was_to_be_cancelled(bench):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    await bench.queue.cancel([task_id])
    await bench.settle(task, Outcome.COMPLETED, body="42")
    record = await bench.record(task_id)
    assert (record.state, record.result) == (TaskState.COMPLETED, 42)


async def test_scheduled_and_retrying_tasks_are_cancelled_at_once(bench):
    scheduled = await bench.put_one(delay_s=60)
    retrying = await bench.put_one()
    await bench.fail_attempt(await bench.claim_one())
    assert await bench.queue.cancel([scheduled, retrying]) == ["cancelled", "cancelled"]
    bench.clock.advance(3600 - 1)
    assert await bench.queue.forward() == 0
    assert {await bench.state(scheduled), await bench.state(retrying)} == {TaskState.CANCELLED}


async def test_what_has_ended_cannot_be_cancelled_and_says_how_it_ended(bench):
    ids = await bench.put(count=3, max_retries=0)
    completed, failed, dead = await bench.claim(3)
    await bench.complete(completed)
    await bench.settle(failed, Outcome.FAILED)
    await bench.fail_attempt(dead)
    before = bench.dump()
    assert await bench.queue.cancel([*ids, new_task_id()]) == ["completed", "failed", "dead_letter", "not_found"]
    assert bench.dump() == before


async def test_a_cancelled_task_is_purged_after_its_retention(bench):
    task_id = await bench.put_one()
    await bench.queue.cancel([task_id])
    bench.clock.advance(CONFIG.result_retention_s)
    assert (await bench.queue.purge())[0] == 1
    with pytest.raises(TaskNotFound):
        await bench.record(task_id)


# ── pause ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_paused_queue_hands_out_nothing_and_does_everything_else(bench):
    await bench.put(count=2)
    running = await bench.claim_one()
    scheduled = await bench.put_one(delay_s=5)
    await bench.queue.pause()
    assert (await bench.inspector.stats()).paused

    await bench.put()
    await bench.complete(running)
    bench.clock.advance(5)
    reply = await bench.ask(5)
    assert (reply.status, reply.tasks) == ("paused", [])
    assert await bench.state(scheduled) is TaskState.QUEUED

    await bench.queue.resume()
    assert not (await bench.inspector.stats()).paused
    assert len(await bench.claim(5)) == 3


async def test_a_new_configuration_does_not_end_a_pause(bench):
    await bench.queue.pause()
    await bench.queue.define(msgspec.structs.replace(CONFIG, repair_limit=10))
    assert (await bench.ask()).status == "paused"


# ── drain ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_busy_worker_is_not_drained(bench):
    await bench.put()
    await bench.claim_one()
    assert await bench.queue.drain([WORKER]) == ["busy"]
    assert (await bench.worker()).state is WorkerState.ACTIVE
    assert (await bench.ask()).status == "ok"


async def test_a_busy_worker_is_drained_by_force_and_finishes_what_it_has(bench):
    await bench.put(count=2)
    task = await bench.claim_one()
    assert await bench.queue.drain([WORKER], force=True) == ["draining"]
    assert (await bench.ask()).status == "draining"
    await bench.complete(task)


async def test_a_drained_worker_is_parked_once_it_has_noticed(bench):
    await bench.queue.drain([WORKER])
    assert not (await bench.worker()).parked
    await bench.claim(1)
    record = await bench.worker()
    assert (record.state, record.parked) == (WorkerState.DRAINING, True)


async def test_a_heartbeat_tells_a_worker_to_drain_and_does_not_undo_it(bench):
    await bench.queue.drain([WORKER])
    assert (await bench.queue.heartbeat(WORKER, status="active")).draining
    assert (await bench.worker()).state is WorkerState.DRAINING


async def test_a_worker_can_drain_itself(bench):
    assert (await bench.queue.heartbeat(WORKER, status="draining")).draining
    await bench.put()
    assert (await bench.ask()).status == "draining"


async def test_an_undrained_worker_claims_again(bench):
    await bench.put()
    await bench.queue.drain([WORKER])
    await bench.claim(1)
    assert await bench.queue.undrain([WORKER]) == ["active"]
    record = await bench.worker()
    assert (record.state, record.parked) == (WorkerState.ACTIVE, False)
    assert len(await bench.claim(1)) == 1


async def test_draining_answers_for_each_worker(bench):
    await bench.register("worker-dead")
    bench.clock.advance(CONFIG.worker_dead_after_s)
    await bench.register(WORKER)
    await bench.queue.reclaim()
    await bench.register(OTHER)
    await bench.put()
    await bench.claim_one(worker=OTHER)
    workers = [WORKER, OTHER, "worker-dead", "stranger"]
    assert await bench.queue.drain(workers, idle_s=CONFIG.worker_dead_after_s) == [
        "draining",
        "busy",
        "dead",
        "not_found",
    ]


async def test_a_worker_that_is_drained_is_told_at_once(bench):
    await bench.queue.drain([WORKER])
    assert bench.raw.lpop(bench.keys.worker_wake(WORKER)) is not None
