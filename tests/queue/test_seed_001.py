"""The spool with backoff and patient dead letters, against its own numbers (``examples/seed_001_spool.py``)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from examples.seed_001_spool import CONFIG, IDLE_BEFORE_SCALE_DOWN_S
from headrace.model.ids import new_task_id
from headrace.model.outcomes import Outcome, Settlement
from headrace.model.retry import backoff_s
from headrace.model.states import TaskState, WorkerActivity, WorkerState
from tests.support.bench import WORKER, Bench, new_task, open_bench, problem_text

DAY_S = 86_400.0


@pytest.fixture
async def bench(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG, WORKER) as bench:
        yield bench


async def worker(bench: Bench):
    (record,) = await bench.inspector.workers()
    return record


async def wear_out(bench: Bench, task_id: str) -> None:
    """Fail every attempt of the only waiting task until it is dead-lettered."""
    while await bench.state(task_id) is not TaskState.DEAD_LETTER:
        await bench.fail_attempt(await bench.claim_one(), "no such host")
        bench.clock.advance(CONFIG.retry.max_s)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_lowest_score_comes_out_first_whatever_the_ids_say(bench):
    ids = [new_task_id() for _ in range(8)]
    random.Random(3).shuffle(ids)
    for task_id in ids:
        await bench.queue.enqueue([new_task("critical", task_id=task_id)])
        bench.clock.advance_us(1)
    assert [task.task_id for task in await bench.claim(8)] == ids


async def test_each_level_is_a_sorted_set_of_its_own_scored_by_time(bench):
    task_id = await bench.put_one("critical")
    assert bench.score("ready:critical:", task_id) == bench.clock.now_us
    assert bench.score("ready:normal:", task_id) is None


async def test_a_retry_comes_back_to_its_old_place_before_younger_tasks(bench):
    first = await bench.put_one("normal")
    bench.clock.advance(1)
    second = await bench.put_one("normal")
    await bench.fail_attempt(await bench.claim_one())
    bench.clock.advance(1)
    assert [task.task_id for task in await bench.claim(2)] == [first, second]


# ── states ───────────────────────────────────────────────────────────────────────────────────────────


async def test_pending_processing_completed(bench):
    task_id = await bench.put_one()
    assert await bench.state(task_id) is TaskState.QUEUED
    task = await bench.claim_one()
    assert await bench.state(task_id) is TaskState.EXECUTING
    await bench.complete(task)
    assert await bench.state(task_id) is TaskState.COMPLETED


async def test_a_failure_counts_up_before_it_waits_and_is_then_processed_again(bench):
    task_id = await bench.put_one()
    await bench.fail_attempt(await bench.claim_one())
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.RETRYING, 1)
    bench.clock.advance(1)
    task = await bench.claim_one()
    assert (task.task_id, task.retries, task.attempt) == (task_id, 1, 2)
    assert await bench.state(task_id) is TaskState.EXECUTING


@pytest.mark.parametrize("max_retries", [0, 1, 3])
async def test_after_max_retries_the_task_is_a_dead_letter(bench, max_retries):
    task_id = await bench.put_one(max_retries=max_retries)
    for retry in range(max_retries):
        await bench.fail_attempt(await bench.claim_one())
        record = await bench.record(task_id)
        assert (record.state, record.retry_count) == (TaskState.RETRYING, retry + 1)
        bench.clock.advance(CONFIG.retry.max_s)
    await bench.fail_attempt(await bench.claim_one())
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.DEAD_LETTER, max_retries)
    assert len(record.history) == max_retries + 1


async def test_every_transition_is_counted(bench):
    await bench.put_one(max_retries=1)
    await bench.fail_attempt(await bench.claim_one())
    bench.clock.advance(1)
    await bench.fail_attempt(await bench.claim_one())
    await bench.put_one()
    await bench.complete(await bench.claim_one())
    await bench.put_one()
    await bench.settle(await bench.claim_one(), Outcome.FAILED)
    counters = (await bench.inspector.stats()).counters
    assert counters == {
        "enqueued": 3,
        "claimed": 4,
        "retrying": 1,
        "forwarded": 1,
        "dead_letter": 1,
        "completed": 1,
        "failed": 1,
        "retrying:normal:error": 1,
        "dead_letter:normal:max_retries_exceeded": 1,
        "completed:normal": 1,
        "failed:normal": 1,
    }


# ── backoff ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("retries", range(21))
def test_the_delay_is_one_second_times_two_to_the_retries_but_at_most_five_minutes(retries):
    assert backoff_s(CONFIG.retry, retries) == min(2**retries, 300)


def test_the_cap_is_reached_with_the_ninth_retry_and_not_before():
    delays_s = [backoff_s(CONFIG.retry, retries) for retries in range(11)]
    assert delays_s == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_the_scripts_wait_exactly_as_long_as_the_formula_says(bench):
    task_id = await bench.put_one(max_retries=21)
    for retries in range(21):
        await bench.fail_attempt(await bench.claim_one())
        delay_s = min(2**retries, 300)
        assert bench.score("delayed", task_id) == bench.clock.now_us + delay_s * 1_000_000
        bench.clock.advance_us(delay_s * 1_000_000 - 1)
        assert await bench.queue.forward() == 0
        reply = await bench.ask()
        assert reply.tasks == []
        assert reply.next_due_in_s == pytest.approx(1e-6)
        bench.clock.advance_us(1)
    assert (await bench.claim_one()).retries == 21


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_dead_letter_keeps_id_payload_reason_and_time(bench):
    task_id = await bench.put_one("high", args=["report", 7], max_retries=0)
    task = await bench.claim_one()
    bench.clock.advance(2)
    await bench.fail_attempt(task, "no such host")

    (letter,) = await bench.inspector.dead_letters()
    assert letter.task_id == task_id
    assert letter.args == ["report", 7]
    assert letter.reason == "max_retries_exceeded"
    assert letter.problem is not None
    assert letter.problem.message == "no such host"
    assert letter.finished_at_s == bench.now_s
    assert bench.score("dead", task_id) == bench.clock.now_us


async def test_dead_letters_are_listed_oldest_first_and_in_pages(bench):
    ids = []
    for _ in range(5):
        ids.append(await bench.put_one(max_retries=0))
        await bench.fail_attempt(await bench.claim_one())
        bench.clock.advance(1)
    assert [letter.task_id for letter in await bench.inspector.dead_letters()] == ids
    page = await bench.inspector.dead_letters(offset=1, limit=3)
    assert [letter.task_id for letter in page] == ids[1:4]


async def test_dead_letters_are_never_cleaned_up(bench):
    task_id = await bench.put_one(max_retries=2)
    await wear_out(bench, task_id)
    bench.clock.advance(400 * DAY_S)
    assert await bench.queue.purge() == (0, 0, 0)
    (letter,) = await bench.inspector.dead_letters()
    assert letter.task_id == task_id


async def test_completed_tasks_are_cleaned_up_all_the_same(bench):
    await bench.put_one()
    await bench.complete(await bench.claim_one())
    bench.clock.advance(CONFIG.result_retention_s)
    assert await bench.queue.purge() == (1, 0, 0)


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_is_idle_from_its_start_busy_with_a_task_and_idle_again(bench):
    started_s = bench.now_s
    assert ((await worker(bench)).activity, (await worker(bench)).idle_since_s) == (WorkerActivity.IDLE, started_s)

    bench.clock.advance(5)
    await bench.put(count=2)
    first, second = await bench.claim(2)
    assert ((await worker(bench)).activity, (await worker(bench)).idle_since_s) == (WorkerActivity.BUSY, None)

    bench.clock.advance(5)
    await bench.complete(first)
    assert (await worker(bench)).activity is WorkerActivity.BUSY

    bench.clock.advance(5)
    await bench.complete(second)
    assert ((await worker(bench)).activity, (await worker(bench)).idle_since_s) == (WorkerActivity.IDLE, bench.now_s)


async def test_a_worker_may_go_after_two_minutes_of_idleness_and_not_a_microsecond_before(bench):
    bench.clock.advance_us(round(IDLE_BEFORE_SCALE_DOWN_S * 1e6) - 1)
    assert await bench.queue.drain([WORKER], idle_s=IDLE_BEFORE_SCALE_DOWN_S) == ["not_idle_long_enough"]
    assert (await worker(bench)).state is WorkerState.ACTIVE
    bench.clock.advance_us(1)
    assert await bench.queue.drain([WORKER], idle_s=IDLE_BEFORE_SCALE_DOWN_S) == ["draining"]
    assert (await worker(bench)).state is WorkerState.DRAINING


async def test_the_two_minutes_are_consecutive_a_task_in_between_starts_them_anew(bench):
    bench.clock.advance(119)
    await bench.put_one()
    task = await bench.claim_one()
    assert await bench.queue.drain([WORKER], idle_s=IDLE_BEFORE_SCALE_DOWN_S) == ["busy"]
    bench.clock.advance(2)
    await bench.complete(task)
    bench.clock.advance(119)
    assert await bench.queue.drain([WORKER], idle_s=IDLE_BEFORE_SCALE_DOWN_S) == ["not_idle_long_enough"]
    bench.clock.advance(1)
    assert await bench.queue.drain([WORKER], idle_s=IDLE_BEFORE_SCALE_DOWN_S) == ["draining"]


async def test_heartbeats_do_not_count_as_work(bench):
    for _ in range(12):
        bench.clock.advance(10)
        await bench.register()
    assert await bench.queue.drain([WORKER], idle_s=IDLE_BEFORE_SCALE_DOWN_S) == ["draining"]


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────


async def test_throughput_is_the_difference_of_two_samples_by_the_time_between_them(bench):
    await bench.put(count=50)
    tasks = await bench.claim(50)
    for task in tasks[:20]:
        await bench.complete(task)
    before = await bench.inspector.stats()
    bench.clock.advance(5)
    for task in tasks[20:]:
        await bench.complete(task)
    after = await bench.inspector.stats()
    completed = after.counters["completed"] - before.counters["completed"]
    assert completed / (after.at_s - before.at_s) == pytest.approx(30 / 5)


async def test_the_last_minute_counts_what_ended_in_it_and_forgets_what_is_older(bench):
    await bench.put(count=3, max_retries=0)
    good, bad, dead = await bench.claim(3)
    await bench.complete(good)
    rows = [(bad, Outcome.FAILED), (dead, Outcome.RETRY)]
    await bench.queue.settle([Settlement(task.task_id, task.token, how, problem_text()) for task, how in rows])
    stats = await bench.inspector.stats()
    assert (stats.completed_last_minute, stats.failed_last_minute) == (1, 2)
    # The minute is kept in slots of ten seconds: 50 seconds are always inside, 60 always outside.
    bench.clock.advance(50)
    stats = await bench.inspector.stats()
    assert (stats.completed_last_minute, stats.failed_last_minute) == (1, 2)
    bench.clock.advance(10)
    stats = await bench.inspector.stats()
    assert (stats.completed_last_minute, stats.failed_last_minute) == (0, 0)


async def test_latency_percentiles_cover_the_last_thousand_tasks(bench):
    await bench.put(count=1100)
    bench.clock.advance(2)
    tasks = await bench.claim(1100)
    # The k-th task runs for k milliseconds; the first hundred fall out of the buffer.
    for task in tasks:
        bench.clock.advance(0.001)
        await bench.queue.settle([Settlement(task.task_id, task.token, Outcome.COMPLETED, "null")])
    assert bench.raw.llen(bench.key("latencies")) == 1000
    stats = await bench.inspector.stats()
    assert (stats.run.p50_s, stats.run.p95_s, stats.run.p99_s) == (0.600, 1.050, 1.090)
    assert (stats.wait.p50_s, stats.wait.p95_s, stats.wait.p99_s) == (2.0, 2.0, 2.0)


async def test_before_anything_has_completed_all_percentiles_are_zero(bench):
    stats = await bench.inspector.stats()
    assert (stats.run.p50_s, stats.run.p99_s, stats.wait.p50_s, stats.wait.p99_s) == (0, 0, 0, 0)
