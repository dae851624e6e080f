"""Tasks whose workers fell silent, and the point at which a task is called poison."""

from __future__ import annotations

from headrace.model.states import TaskState
from tests.support.bench import CONFIG, Bench


async def crash(bench: Bench) -> None:
    """Claim a task and fall silent until the lease is over; come back when the backoff is over, too."""
    await bench.claim_one()
    bench.clock.advance(CONFIG.lease_s)
    await bench.queue.reclaim()
    bench.clock.advance(CONFIG.retry.max_s)
    await bench.register()


async def test_a_task_that_took_three_workers_down_is_poison(bench):
    task_id = await bench.put_one(max_retries=10)
    for crashes in range(1, 4):
        assert await bench.state(task_id) is (TaskState.QUEUED if crashes == 1 else TaskState.RETRYING)
        await crash(bench)
    record = await bench.record(task_id)
    assert (record.state, record.reason) == (TaskState.DEAD_LETTER, "poison")
    assert [attempt.reason for attempt in record.history] == ["lease_expired"] * 3
    assert (await bench.inspector.stats()).counters["lease_expired"] == 3


async def test_failures_in_between_do_not_make_a_crash_forgotten(bench):
    task_id = await bench.put_one(max_retries=10)
    for _ in range(2):
        await crash(bench)
        await bench.fail_attempt(await bench.claim_one())
        bench.clock.advance(CONFIG.retry.max_s)
    await crash(bench)
    assert (await bench.record(task_id)).reason == "poison"


async def test_an_attempt_that_ran_out_of_time_is_no_crash(bench):
    task_id = await bench.put_one(max_retries=10, timeout_s=5)
    for _ in range(4):
        await bench.claim_one()
        bench.clock.advance(CONFIG.lease_s)
        await bench.queue.reclaim()
        bench.clock.advance(CONFIG.retry.max_s)
        await bench.register()
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.RETRYING, 4)
    assert [attempt.reason for attempt in record.history] == ["timeout"] * 4
    assert (await bench.inspector.stats()).counters["timeouts"] == 4


async def test_a_replay_forgives_the_crashes(bench):
    task_id = await bench.put_one(max_retries=10)
    for _ in range(3):
        await crash(bench)
    await bench.queue.replay([task_id])
    await crash(bench)
    assert await bench.state(task_id) is TaskState.RETRYING
