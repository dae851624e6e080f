"""What becomes of a task with each outcome of an attempt: finished, snoozed, handed back or tried again."""

from __future__ import annotations

import pytest

from headrace.model.config import RetryPolicy
from headrace.model.errors import TaskNotFound
from headrace.model.outcomes import Outcome, Settlement
from headrace.model.states import TaskState
from tests.support.bench import WORKER, problem_text

# ── settle ───────────────────────────────────────────────────────────────────────────────────────────


async def test_settling_and_claiming_in_one_go_does_both(bench):
    await bench.put(count=2)
    task = await bench.claim_one()
    rows = [Settlement(task.task_id, task.token, Outcome.COMPLETED, "42")]
    statuses, reply = await bench.queue.settle_and_claim(rows, WORKER, 5, number=100)
    assert statuses == ["settled"]
    assert len(reply.tasks) == 1
    assert (await bench.record(task.task_id)).result == 42


async def test_with_no_retention_a_finished_task_is_deleted_at_once(bench_with):
    async with bench_with(result_retention_s=0) as bench:
        task_id = await bench.put_one()
        await bench.complete(await bench.claim_one())
        with pytest.raises(TaskNotFound):
            await bench.record(task_id)
        assert (await bench.inspector.stats()).counters["completed"] == 1


async def test_a_permanent_failure_keeps_its_error_and_the_attempt(bench):
    task_id = await bench.put_one()
    await bench.settle(await bench.claim_one(), Outcome.FAILED, body=problem_text("no such customer"))
    record = await bench.record(task_id)
    assert record.state is TaskState.FAILED
    assert record.problem is not None
    assert record.problem.message == "no such customer"
    assert [attempt.reason for attempt in record.history] == ["failed"]


# ── snooze and hand back ─────────────────────────────────────────────────────────────────────────────


async def test_a_snooze_spends_no_attempt_and_queues_up_when_it_is_over(bench):
    task_id = await bench.put_one()
    await bench.settle(await bench.claim_one(), Outcome.SNOOZED, after_s=90)
    due_us = bench.clock.now_us + 90_000_000
    record = await bench.record(task_id)
    assert (record.state, record.retry_count, record.worker) == (TaskState.SCHEDULED, 0, None)
    bench.clock.advance_us(90_000_000 - 1)
    assert await bench.claim(1) == []
    bench.clock.advance(10)
    assert await bench.queue.forward() == 1
    assert bench.score("ready:medium:", task_id) == due_us
    task = await bench.claim_one()
    assert (task.task_id, task.attempt) == (task_id, 1)
    assert (await bench.record(task_id)).history == ()


async def test_a_promoted_task_that_was_snoozed_can_be_found_and_cancelled_where_it_waits(bench):
    task_id = await bench.put_one("low")
    bench.clock.advance(600)
    await bench.queue.promote()
    await bench.settle(await bench.claim_one(), Outcome.SNOOZED, after_s=10)
    bench.clock.advance(10)
    await bench.queue.forward()
    record = await bench.record(task_id)
    assert bench.score(f"ready:{record.effective_priority}:", task_id) is not None
    assert await bench.inspector.position(task_id) == 1
    assert await bench.queue.cancel([task_id]) == ["cancelled"]
    assert await bench.claim(1) == []
    assert await bench.state(task_id) is TaskState.CANCELLED


async def test_a_task_that_is_handed_back_returns_to_its_place_and_spends_no_attempt(bench):
    first = await bench.put_one()
    created_us = bench.clock.now_us
    bench.clock.advance(1)
    second = await bench.put_one()
    bench.clock.advance(1)
    await bench.settle(await bench.claim_one(), Outcome.HANDED_BACK)
    record = await bench.record(first)
    assert (record.state, record.retry_count, record.worker, record.history) == (TaskState.QUEUED, 0, None, ())
    assert bench.score("ready:medium:", first) == created_us
    tasks = await bench.claim(2)
    assert [(task.task_id, task.attempt) for task in tasks] == [(first, 1), (second, 1)]


async def test_a_promoted_task_that_is_handed_back_keeps_its_promotion(bench):
    task_id = await bench.put_one("low")
    created_us = bench.clock.now_us
    bench.clock.advance(600)
    await bench.queue.promote()
    await bench.settle(await bench.claim_one(), Outcome.HANDED_BACK)
    assert bench.score("ready:medium:", task_id) == created_us
    record = await bench.record(task_id)
    assert (record.priority, record.effective_priority) == ("low", "medium")


async def test_a_retry_that_is_handed_back_keeps_its_count(bench):
    task_id = await bench.put_one()
    await bench.fail_attempt(await bench.claim_one())
    bench.clock.advance(1)
    await bench.settle(await bench.claim_one(), Outcome.HANDED_BACK)
    assert (await bench.record(task_id)).retry_count == 1


# ── retry ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("after_s", [0.25, 42, 86_400])
async def test_a_retry_that_says_when_is_not_given_the_backoff(bench, after_s):
    task_id = await bench.put_one()
    await bench.settle(await bench.claim_one(), Outcome.RETRY, after_s=after_s)
    assert bench.score("delayed", task_id) == bench.clock.now_us + after_s * 1_000_000
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.RETRYING, 1)


async def test_a_retry_after_no_time_is_queued_at_once(bench):
    task_id = await bench.put_one()
    await bench.settle(await bench.claim_one(), Outcome.RETRY, after_s=0)
    assert await bench.state(task_id) is TaskState.QUEUED
    assert (await bench.claim_one()).attempt == 2


async def test_a_retry_that_says_when_is_buried_all_the_same_when_none_is_left(bench):
    task_id = await bench.put_one(max_retries=0)
    await bench.settle(await bench.claim_one(), Outcome.RETRY, after_s=42)
    assert await bench.state(task_id) is TaskState.DEAD_LETTER


async def test_jitter_takes_off_up_to_its_share_and_spreads_a_batch(bench_with):
    async with bench_with(retry=RetryPolicy(base_s=8, jitter=0.25)) as bench:
        ids = await bench.put(count=200)
        tasks = await bench.claim(200)
        rows = [[task.task_id, task.token, "retry", problem_text()] for task in tasks]
        await bench.run("settle", {"random": 0.5, "rows": rows})
        delays_us = []
        for task_id in ids:
            due_us = bench.score("delayed", task_id)
            assert due_us is not None
            delays_us.append(due_us - bench.clock.now_us)
        assert all(6_000_000 <= delay_us <= 8_000_000 for delay_us in delays_us)
        # Spread over the whole range: no two alike, and both ends are reached.
        assert len(set(delays_us)) == 200
        assert min(delays_us) < 6_050_000
        assert max(delays_us) > 7_950_000


@pytest.mark.parametrize("draw", [0.0, 0.999999])
async def test_without_jitter_chance_has_no_say(bench, draw):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    await bench.run("settle", {"random": draw, "rows": [[task_id, task.token, "retry", problem_text()]]})
    assert bench.score("delayed", task_id) == bench.clock.now_us + 1_000_000
