"""The verbs of a queue one by one: what they answer, what they leave behind, and what they must not touch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import redis.asyncio

from headrace.model.config import Level, Promotion, QueueConfig, RetryPolicy
from headrace.model.errors import (
    BackendError,
    ConfigConflict,
    InvalidInput,
    InvalidPayload,
    OutOfMemory,
    TaskNotFound,
    UnknownLevel,
)
from headrace.model.ids import new_task_id
from headrace.model.outcomes import Outcome, Settlement, SettleStatus
from headrace.model.states import TaskState, WorkerActivity, WorkerState
from headrace.model.task import ClaimedTask
from headrace.queue.keys import FIXED, queue_names_key
from tests.queue.test_seed_bench import WORKER, Bench, new_task, open_bench, problem_text
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

CONFIG = QueueConfig("verbs")
OTHER = "worker-2"

OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture
async def bench(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG, WORKER) as bench:
        yield bench


@pytest.fixture
def bench_with(frozen_redis, tenant) -> OpenBench:
    """A queue with a configuration of the test's own: ``async with bench_with(max_crashes=2) as bench``."""

    def open_with(*workers: str, **settings: Any) -> AbstractAsyncContextManager[Bench]:
        return open_bench(frozen_redis, tenant, QueueConfig("verbs", **settings), *(workers or (WORKER,)))

    return open_with


async def worker(bench: Bench, name: str = WORKER):
    return {record.worker: record for record in await bench.inspector.workers()}[name]


# ── enqueue ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fields", [{}, {"delay_s": 60}, {"idempotency_key": "order-1"}, {"capabilities": "gpu"}])
async def test_an_enqueue_that_is_sent_again_changes_nothing_and_answers_the_same(bench, fields):
    tasks = [new_task("high", **fields), new_task("low")]
    first = await bench.queue.enqueue(tasks)
    before = bench.dump()
    assert await bench.queue.enqueue(tasks) == first
    assert bench.dump() == before


async def test_an_enqueue_that_is_sent_again_does_not_restart_a_task_that_ran_meanwhile(bench):
    tasks = [new_task(), new_task()]
    await bench.queue.enqueue(tasks)
    await bench.complete(await bench.claim_one())
    await bench.claim_one()
    before = bench.dump()
    await bench.queue.enqueue(tasks)
    assert bench.dump() == before


async def test_an_idempotent_enqueue_that_is_sent_again_does_not_restart_a_task_that_is_gone(bench_with):
    async with bench_with(result_retention_s=0) as bench:
        task = new_task(idempotency_key="order-1")
        (first,) = await bench.queue.enqueue([task])
        await bench.complete(await bench.claim_one())
        assert await bench.queue.enqueue([task]) == [first]
        assert await bench.claim(1) == []


async def test_an_enqueue_of_nothing_is_nothing(bench):
    before = bench.dump()
    assert await bench.queue.enqueue([]) == []
    assert bench.dump() == before


async def test_a_task_without_a_level_gets_the_default_one(bench):
    assert (await bench.record(await bench.put_one())).priority == "medium"


async def test_a_bulk_of_several_calls_arrives_whole_and_in_order(bench):
    ids = await bench.put("high", count=2500)
    received = [task.task_id for _ in range(3) for task in await bench.claim(1000)]
    assert received == ids


async def test_a_payload_that_is_too_large_is_refused_and_leaves_nothing(bench_with):
    async with bench_with(max_payload_bytes=100) as bench:
        good, large = new_task(message="x" * 100), new_task(message="x" * 101)
        before = bench.dump()
        with pytest.raises(InvalidPayload, match=r"^payload: is 101 bytes as JSON; at most 100 are allowed$"):
            await bench.queue.enqueue([large])
        with pytest.raises(
            InvalidPayload, match=r"^tasks\[1\]\.payload: is 101 bytes as JSON; at most 100 are allowed$"
        ):
            await bench.queue.enqueue([good, large])
        assert bench.dump() == before
        await bench.queue.enqueue([good])


async def test_the_size_is_counted_in_bytes_and_not_in_characters(bench_with):
    async with bench_with(max_payload_bytes=100) as bench:
        with pytest.raises(InvalidPayload, match="is 120 bytes as JSON"):
            await bench.queue.enqueue([new_task(message="ä" * 60)])


async def test_an_unknown_level_is_refused_and_leaves_nothing(bench):
    before = bench.dump()
    expected = r"^priority: queue 'verbs' has no level 'urgent'; it has high, medium, low$"
    with pytest.raises(UnknownLevel, match=expected):
        await bench.put("urgent")
    with pytest.raises(UnknownLevel, match=r"^tasks\[2\]\.priority: "):
        await bench.queue.enqueue([new_task("high"), new_task("low"), new_task("urgent")])
    assert bench.dump() == before


async def test_a_delay_past_the_limit_is_refused_and_leaves_nothing(bench_with):
    async with bench_with(max_delay_s=3600) as bench:
        before = bench.dump()
        with pytest.raises(InvalidInput, match=r"^delay_s: is more than the queue's max_delay_s of 3600 seconds$"):
            await bench.put(delay_s=3600.000001)
        assert bench.dump() == before
        await bench.put(delay_s=3600)


@pytest.mark.parametrize("fields", [{"level": "urgent"}, {"message": "x" * (1 << 20) + "x"}, {"delay_s": 400 * 86_400}])
async def test_a_bad_task_at_the_end_of_a_large_bulk_keeps_all_of_it_out(bench, fields):
    tasks = [new_task("high") for _ in range(2500)] + [new_task(**fields)]
    before = bench.dump()
    with pytest.raises(InvalidInput, match=r"^tasks\[2500\]\."):
        await bench.queue.enqueue(tasks)
    assert bench.dump() == before


async def test_the_65th_capability_set_is_refused_and_leaves_nothing(bench):
    # The empty set is one of the 64.
    await bench.queue.enqueue([new_task(capabilities=f"cap-{i}") for i in range(63)])
    before = bench.dump()
    with pytest.raises(InvalidInput, match=r"^required_capabilities: would be one more than the 64 different"):
        await bench.put(capabilities="cap-63")
    assert bench.dump() == before
    await bench.put(capabilities="cap-0")


# ── claim ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_claim_that_is_sent_again_gets_the_same_tasks_with_the_same_tokens(bench):
    await bench.put(count=5)
    first = await bench.queue.claim(WORKER, 3, number=7)
    before = bench.dump()
    again = await bench.queue.claim(WORKER, 3, number=7)
    assert again.tasks == first.tasks
    assert bench.dump() == before
    assert (await worker(bench)).load == 3


async def test_a_claim_with_the_next_number_gets_other_tasks(bench):
    await bench.put(count=5)
    first = await bench.queue.claim(WORKER, 3, number=7)
    second = await bench.queue.claim(WORKER, 3, number=8)
    assert [len(first.tasks), len(second.tasks)] == [3, 2]
    assert {task.task_id for task in first.tasks}.isdisjoint(task.task_id for task in second.tasks)


async def test_a_claim_that_is_sent_again_leaves_out_what_was_settled_or_lost_meanwhile(bench):
    await bench.put(count=3)
    first = await bench.queue.claim(WORKER, 3, number=7)
    await bench.complete(first.tasks[0])
    await bench.settle(first.tasks[1], Outcome.HANDED_BACK)
    again = await bench.queue.claim(WORKER, 3, number=7)
    assert again.tasks == [first.tasks[2]]


async def test_a_claim_that_is_sent_again_tells_the_level_a_promoted_task_was_taken_from(bench):
    await bench.put("low")
    bench.clock.advance(600)
    await bench.queue.promote()
    first = await bench.queue.claim(WORKER, 1, number=7)
    assert first.tasks[0].level == "medium"
    assert (await bench.queue.claim(WORKER, 1, number=7)).tasks == first.tasks


async def test_a_draining_worker_still_gets_the_answer_it_lost(bench):
    await bench.put()
    first = await bench.queue.claim(WORKER, 1, number=7)
    await bench.queue.drain([WORKER], force=True)
    assert (await bench.queue.claim(WORKER, 1, number=7)).tasks == first.tasks


async def test_a_worker_nobody_knows_gets_nothing(bench):
    await bench.put()
    reply = await bench.ask(worker="stranger")
    assert (reply.status, reply.tasks) == ("unregistered", [])


async def test_a_claim_of_nothing_takes_nothing(bench):
    await bench.put()
    assert await bench.claim(0) == []
    assert (await bench.inspector.stats()).waiting == 1


async def test_a_claim_says_when_the_next_delayed_task_is_due(bench):
    assert (await bench.ask()).next_due_in_s is None
    await bench.put(delay_s=60)
    await bench.put(delay_s=20)
    bench.clock.advance(5)
    assert (await bench.ask()).next_due_in_s == 15


async def test_a_claim_says_which_capability_sets_to_listen_on(bench):
    await bench.register(OTHER, capabilities="gpu,ssd")
    await bench.queue.enqueue([new_task(capabilities=capset) for capset in ("gpu", "gpu,ssd", "fpga", "fpga,gpu")])
    assert sorted((await bench.ask()).capsets) == [""]
    assert sorted((await bench.ask(worker=OTHER)).capsets) == ["", "gpu", "gpu,ssd"]


async def test_an_id_whose_task_was_deleted_by_hand_is_dropped(bench):
    gone, kept = await bench.put(count=2)
    bench.raw.delete(bench.keys.task(gone))
    assert [task.task_id for task in await bench.claim(2)] == [kept]
    stats = await bench.inspector.stats()
    assert (stats.waiting, stats.counters["dangling"]) == (0, 1)


async def test_tokens_rise_with_every_claim_of_a_task(bench):
    await bench.put()
    tokens = []
    for _ in range(4):
        task = await bench.claim_one()
        tokens.append(task.token)
        await bench.settle(task, Outcome.HANDED_BACK)
    assert tokens == sorted(set(tokens))


# ── settle ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
async def test_a_settle_that_is_sent_again_is_recognised_and_changes_nothing(bench, outcome, cancelled):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    if cancelled:
        await bench.queue.cancel([task_id])
    assert await bench.settle(task, outcome, after_s=5) is SettleStatus.SETTLED
    before = bench.dump()
    assert await bench.settle(task, outcome, after_s=5) is SettleStatus.DUPLICATE
    assert bench.dump() == before


async def test_a_settle_after_the_last_retry_that_is_sent_again_is_recognised(bench):
    await bench.put(max_retries=0)
    task = await bench.claim_one()
    await bench.fail_attempt(task)
    assert await bench.settle(task, Outcome.RETRY) is SettleStatus.DUPLICATE


async def test_a_second_settle_that_says_something_else_is_lost(bench):
    task_id = await bench.put_one()
    task = await bench.claim_one()
    await bench.complete(task)
    before = bench.dump()
    for outcome in set(Outcome) - {Outcome.COMPLETED}:
        assert await bench.settle(task, outcome, after_s=5) is SettleStatus.LOST
    assert bench.dump() == before
    assert await bench.state(task_id) is TaskState.COMPLETED


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_settle_with_a_stale_token_is_lost_and_changes_nothing(bench, outcome):
    await bench.put()
    stale = await bench.claim_one()
    await bench.settle(stale, Outcome.HANDED_BACK)
    current = await bench.claim_one()
    before = bench.dump()
    assert await bench.settle(stale, outcome, after_s=5) is SettleStatus.LOST
    assert bench.dump() == before
    await bench.complete(current)


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_whatever_is_said_about_a_lease_that_was_taken_back_is_lost(bench, outcome):
    await bench.put()
    late = await bench.claim_one()
    bench.clock.advance(CONFIG.lease_s)
    await bench.queue.reclaim()
    before = bench.dump()
    assert await bench.settle(late, outcome, after_s=5) is SettleStatus.LOST
    assert bench.dump() == before


async def test_a_settle_of_a_task_that_does_not_exist_is_gone(bench):
    (status,) = await bench.queue.settle([Settlement(new_task_id(), 1, Outcome.COMPLETED, "null")])
    assert status is SettleStatus.GONE


async def test_a_settle_of_a_task_that_was_purged_is_gone(bench):
    await bench.put()
    task = await bench.claim_one()
    await bench.complete(task)
    bench.clock.advance(CONFIG.result_retention_s)
    await bench.queue.purge()
    assert await bench.settle(task, Outcome.COMPLETED) is SettleStatus.GONE


async def test_each_row_of_a_settle_is_judged_on_its_own(bench):
    await bench.put(count=3)
    done, stale, good = await bench.claim(3)
    await bench.complete(done)
    rows = [
        Settlement(done.task_id, done.token, Outcome.COMPLETED, "null"),
        Settlement(stale.task_id, stale.token + 1, Outcome.COMPLETED, "null"),
        Settlement(new_task_id(), 1, Outcome.COMPLETED, "null"),
        Settlement(good.task_id, good.token, Outcome.COMPLETED, "null"),
    ]
    assert await bench.queue.settle(rows) == ["duplicate", "lost", "gone", "settled"]
    assert await bench.state(stale.task_id) is TaskState.EXECUTING


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
        rows = [[task.task_id, task.token, "retry", problem_text(), -1] for task in tasks]
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
    await bench.run("settle", {"random": draw, "rows": [[task_id, task.token, "retry", problem_text(), -1]]})
    assert bench.score("delayed", task_id) == bench.clock.now_us + 1_000_000


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────


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


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_dead_letter_tells_the_story_of_its_attempts(bench):
    await bench.register(OTHER)
    await bench.put("high", args=[{"order": 7}], max_retries=1)
    story = []
    for name, message in ((WORKER, "first"), (OTHER, "second")):
        task = await bench.claim_one(worker=name)
        started_s = bench.now_s
        bench.clock.advance(3)
        await bench.fail_attempt(task, message)
        story.append((task.attempt, name, started_s, bench.now_s, "error", message))
        bench.clock.advance(1)
    (letter,) = await bench.inspector.dead_letters()
    assert letter.args == [{"order": 7}]
    assert letter.reason == "max_retries_exceeded"
    assert letter.finished_at_s == story[-1][3]
    told = [
        (
            attempt.number,
            attempt.worker,
            attempt.started_at_s,
            attempt.ended_at_s,
            attempt.reason,
            attempt.problem.message,
        )
        for attempt in letter.history
    ]
    assert told == story


async def test_the_history_keeps_the_last_fifty_attempts(bench):
    task_id = await bench.put_one(max_retries=60)
    for number in range(1, 61):
        await bench.settle(await bench.claim_one(), Outcome.RETRY, body=problem_text(f"{number}"), after_s=0)
    history = (await bench.record(task_id)).history
    assert [attempt.number for attempt in history] == list(range(11, 61))


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


# ── heartbeat ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_is_recorded_with_all_it_said(bench):
    registered_s = bench.now_s
    bench.clock.advance(10)
    await bench.queue.heartbeat(WORKER, capacity=7, capabilities="gpu,ssd", version="1.2.3", host="node-a")
    record = await worker(bench)
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
    assert (await worker(bench)).load == 0
    bench.clock.advance(1)
    assert (await bench.claim_one()).task_id == task_id
    assert (await worker(bench)).load == 1
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


# ── drain ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_busy_worker_is_not_drained(bench):
    await bench.put()
    await bench.claim_one()
    assert await bench.queue.drain([WORKER]) == ["busy"]
    assert (await worker(bench)).state is WorkerState.ACTIVE
    assert (await bench.ask()).status == "ok"


async def test_a_busy_worker_is_drained_by_force_and_finishes_what_it_has(bench):
    await bench.put(count=2)
    task = await bench.claim_one()
    assert await bench.queue.drain([WORKER], force=True) == ["draining"]
    assert (await bench.ask()).status == "draining"
    await bench.complete(task)


async def test_a_drained_worker_is_parked_once_it_has_noticed(bench):
    await bench.queue.drain([WORKER])
    assert not (await worker(bench)).parked
    await bench.claim(1)
    record = await worker(bench)
    assert (record.state, record.parked) == (WorkerState.DRAINING, True)


async def test_a_heartbeat_tells_a_worker_to_drain_and_does_not_undo_it(bench):
    await bench.queue.drain([WORKER])
    assert (await bench.queue.heartbeat(WORKER, status="active")).draining
    assert (await worker(bench)).state is WorkerState.DRAINING


async def test_a_worker_can_drain_itself(bench):
    assert (await bench.queue.heartbeat(WORKER, status="draining")).draining
    await bench.put()
    assert (await bench.ask()).status == "draining"


async def test_an_undrained_worker_claims_again(bench):
    await bench.put()
    await bench.queue.drain([WORKER])
    await bench.claim(1)
    assert await bench.queue.undrain([WORKER]) == ["active"]
    record = await worker(bench)
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


# ── define ───────────────────────────────────────────────────────────────────────────────────────────


async def test_defining_the_same_queue_again_writes_nothing(bench):
    before = bench.dump()
    assert await bench.queue.define(CONFIG) == CONFIG
    assert bench.dump() == before


async def test_a_definition_is_what_can_be_read_back(bench_with):
    settings: dict[str, Any] = {
        "levels": (Level("fast", weight=0.3, max_retries=0, timeout_s=1.5), Level("slow", weight=0.1)),
        "default_level": "slow",
        "selection": "weighted",
        "promotions": (Promotion("slow", "fast", after_s=0.25, batch=7),),
        "dead_letter_retention_s": None,
        "events_max": 0,
    }
    async with bench_with(**settings) as bench:
        assert await bench.queue.config() == QueueConfig("verbs", **settings)


async def test_a_defined_queue_is_listed_under_its_tenant(bench):
    assert bench.raw.smembers(queue_names_key(bench.tenant)) == {b"verbs"}


async def test_what_the_operator_defined_is_not_overwritten_by_an_app(bench):
    operators = msgspec.structs.replace(CONFIG, lease_s=60)
    assert await bench.queue.define(operators, owner="operator", generation=3) == operators
    assert await bench.queue.define(CONFIG) == operators
    assert await bench.queue.config() == operators


async def test_an_older_generation_of_the_operator_does_not_overwrite_a_newer_one(bench):
    newer = msgspec.structs.replace(CONFIG, lease_s=60)
    older = msgspec.structs.replace(CONFIG, lease_s=50)
    newest = msgspec.structs.replace(CONFIG, lease_s=70)
    await bench.queue.define(newer, owner="operator", generation=3)
    assert await bench.queue.define(older, owner="operator", generation=2) == newer
    assert await bench.queue.define(newest, owner="operator", generation=4) == newest


@pytest.mark.parametrize("capabilities", ["", "gpu"])
async def test_a_level_in_which_tasks_wait_cannot_go(bench, capabilities):
    await bench.put("low", count=2, capabilities=capabilities)
    before = bench.dump()
    with pytest.raises(ConfigConflict, match=r"^levels: 'low' cannot go while 2 tasks wait in it; let them drain or"):
        await bench.queue.define(QueueConfig("verbs", levels=CONFIG.levels[:2]))
    assert bench.dump() == before


async def test_tasks_of_a_level_that_went_fall_to_the_lowest_one(bench_with):
    """Tasks that are delayed or running do not keep a level alive; they must not be lost with it."""
    levels = (Level("a"), Level("b"), Level("c"))
    async with bench_with(levels=levels) as bench:
        running = [await bench.put_one("a") for _ in range(2)]
        retried, handed_back = await bench.claim(2)
        scheduled = await bench.put_one("a", delay_s=10)
        await bench.queue.define(QueueConfig("verbs", levels=levels[1:]))

        await bench.settle(retried, Outcome.RETRY, after_s=0)
        await bench.settle(handed_back, Outcome.HANDED_BACK)
        bench.clock.advance(10)
        await bench.queue.forward()
        tasks = await bench.claim(5)
        assert sorted(task.task_id for task in tasks) == sorted([*running, scheduled])
        assert {task.level for task in tasks} == {"c"}


async def test_a_promoted_task_whose_new_level_went_can_be_cancelled_where_it_waits(bench_with):
    levels = (Level("a"), Level("b"), Level("c"))
    promotions = (Promotion("c", "b", after_s=60),)
    async with bench_with(levels=levels, promotions=promotions) as bench:
        task_id = await bench.put_one("c")
        bench.clock.advance(60)
        await bench.queue.promote()
        task = await bench.claim_one()
        await bench.queue.define(QueueConfig("verbs", levels=(levels[0], levels[2])))
        await bench.settle(task, Outcome.HANDED_BACK)
        assert (await bench.record(task_id)).effective_priority == "c"
        assert await bench.queue.cancel([task_id]) == ["cancelled"]
        assert await bench.claim(1) == []


# ── waking idle workers ──────────────────────────────────────────────────────────────────────────────


def tokens(bench: Bench, capset: str = "") -> int:
    count: int = bench.raw.llen(bench.keys.wake(capset))
    return count


async def test_a_worker_that_blocks_is_woken_by_an_enqueue(bench):
    async with redis.asyncio.Redis.from_url(bench.server.url, protocol=2) as sleeper:
        blocked = asyncio.ensure_future(sleeper.blpop([bench.keys.wake("")], timeout=0))

        async def is_blocked() -> bool:
            return any(client["cmd"] == "blpop" for client in bench.raw.client_list())

        await eventually(is_blocked)
        await bench.put()
        async with asyncio.timeout(30):
            token: Any = await blocked
        assert token[0] == bench.keys.wake("").encode()


async def test_there_are_never_more_tokens_than_workers(bench):
    await bench.put(count=10)
    assert tokens(bench) == 1
    await bench.register(OTHER)
    await bench.put(count=10)
    assert tokens(bench) == 2
    await bench.put(count=10)
    assert tokens(bench) == 2


async def test_one_task_wakes_one_worker(bench):
    await bench.register(OTHER)
    await bench.put()
    assert tokens(bench) == 1


async def test_two_tasks_that_come_one_by_one_wake_two_workers(bench):
    await bench.register(OTHER)
    await bench.put()
    await bench.put()
    assert tokens(bench) == 2


async def test_without_workers_nobody_is_woken(bench):
    await bench.queue.heartbeat(WORKER, status="stopped")
    await bench.put(count=3)
    assert tokens(bench) == 0


async def test_a_claim_that_finds_less_than_it_wanted_clears_the_tokens(bench):
    await bench.register(OTHER)
    await bench.put(count=2)
    assert tokens(bench) == 2
    await bench.claim(2)
    assert tokens(bench) == 2
    await bench.claim(1)
    assert tokens(bench) == 0


async def test_a_delayed_task_wakes_a_worker_if_it_is_due_before_all_others(bench):
    await bench.put(delay_s=60)
    assert tokens(bench) == 1
    await bench.claim(1)
    await bench.put(delay_s=120)
    assert tokens(bench) == 0
    await bench.put(delay_s=10)
    assert tokens(bench) == 1


@pytest.mark.parametrize("outcome", [Outcome.HANDED_BACK, Outcome.RETRY])
async def test_a_task_that_comes_back_wakes_a_worker(bench, outcome):
    await bench.put()
    task = await bench.claim_one()
    await bench.claim(1)
    assert tokens(bench) == 0
    await bench.settle(task, outcome, after_s=0)
    assert tokens(bench) == 1


async def test_forwarded_and_replayed_tasks_wake_workers(bench):
    task_id = await bench.put_one(delay_s=5, max_retries=0)
    await bench.claim(1)
    bench.clock.advance(5)
    await bench.queue.forward()
    assert tokens(bench) == 1
    await bench.fail_attempt(await bench.claim_one())
    await bench.claim(1)
    await bench.queue.replay([task_id])
    assert tokens(bench) == 1


async def test_a_new_capability_set_is_announced_to_everyone_once(bench):
    await bench.register(OTHER, capabilities="gpu")
    await bench.put(capabilities="gpu")
    # Nobody listens on the new list yet, so all that listen on the common one are told.
    assert (tokens(bench), tokens(bench, "gpu")) == (2, 1)
    await bench.claim(1)
    await bench.claim(2, worker=OTHER)
    assert (tokens(bench), tokens(bench, "gpu")) == (0, 0)
    await bench.put(capabilities="gpu")
    assert (tokens(bench), tokens(bench, "gpu")) == (0, 1)


async def test_a_capability_set_that_was_forgotten_is_announced_anew(bench):
    await bench.register(OTHER, capabilities="gpu")
    await bench.put(capabilities="gpu")
    await bench.claim(2, worker=OTHER)
    await bench.queue.purge()
    assert (await bench.ask(worker=OTHER)).capsets == [""]
    await bench.put(capabilities="gpu")
    assert (tokens(bench), tokens(bench, "gpu")) == (2, 1)


async def test_a_dry_claim_leaves_tokens_of_sets_the_worker_does_not_cover(bench):
    await bench.register(OTHER, capabilities="gpu")
    await bench.put(capabilities="gpu")
    await bench.claim(1)
    assert (tokens(bench), tokens(bench, "gpu")) == (0, 1)


async def test_resuming_and_a_new_configuration_wake_everyone(bench):
    await bench.register(OTHER)
    await bench.claim(1)
    await bench.queue.resume()
    assert tokens(bench) == 2
    await bench.claim(1)
    assert tokens(bench) == 0
    await bench.queue.define(msgspec.structs.replace(CONFIG, repair_limit=10))
    assert tokens(bench) == 2


# ── events ───────────────────────────────────────────────────────────────────────────────────────────


async def test_the_event_stream_tells_the_life_of_a_task(bench):
    task_id = await bench.put_one("low", max_retries=1)
    bench.clock.advance(600)
    await bench.queue.promote()
    await bench.fail_attempt(await bench.claim_one())
    bench.clock.advance(1)
    await bench.fail_attempt(await bench.claim_one())
    await bench.queue.replay([task_id])
    await bench.settle(await bench.claim_one(), Outcome.HANDED_BACK)
    await bench.settle(await bench.claim_one(), Outcome.SNOOZED, after_s=0)
    await bench.complete(await bench.claim_one())
    assert bench.events() == [
        [task_id, "enqueued", "low", 1, "", ""],
        [task_id, "promoted", "medium", 0, "", "low"],
        [task_id, "claimed", "medium", 1, WORKER, ""],
        [task_id, "retrying", "low", 1, WORKER, "error"],
        [task_id, "forwarded", "low", 2, "", ""],
        [task_id, "claimed", "low", 2, WORKER, ""],
        [task_id, "dead_letter", "low", 2, WORKER, "max_retries_exceeded"],
        [task_id, "replayed", "low", 1, "", ""],
        [task_id, "claimed", "low", 1, WORKER, ""],
        [task_id, "handed_back", "low", 1, WORKER, ""],
        [task_id, "claimed", "low", 1, WORKER, ""],
        [task_id, "snoozed", "low", 1, WORKER, ""],
        [task_id, "forwarded", "low", 1, "", ""],
        [task_id, "claimed", "low", 1, WORKER, ""],
        [task_id, "completed", "low", 1, WORKER, ""],
    ]


async def test_one_call_makes_one_entry_with_a_row_for_each_task(bench):
    ids = await bench.put(count=3)
    ((_, fields),) = bench.raw.xrange(bench.key("events"))
    assert [row[0] for row in msgspec.msgpack.decode(fields[b"rows"])] == ids


async def test_the_stream_can_be_turned_off(bench_with):
    async with bench_with(events_max=0) as bench:
        await bench.put()
        await bench.complete(await bench.claim_one())
        assert bench.raw.exists(bench.key("events")) == 0
        assert (await bench.inspector.stats()).counters["completed"] == 1


# ── inspection ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("task_id", ["", "x", "{other/queue}:task:1", "0" * 36])
async def test_what_is_no_task_id_is_not_found(bench, task_id):
    with pytest.raises(TaskNotFound):
        await bench.record(task_id)


async def test_a_task_that_is_not_waiting_has_the_position_zero(bench):
    scheduled = await bench.put_one(delay_s=5)
    running = await bench.put_one()
    await bench.claim_one()
    assert [await bench.inspector.position(task_id) for task_id in (scheduled, running)] == [0, 0]
    with pytest.raises(TaskNotFound):
        await bench.inspector.position(new_task_id())


async def test_with_weighted_selection_the_position_is_that_within_the_level(bench_with):
    async with bench_with(selection="weighted") as bench:
        await bench.put("high", count=5)
        low = await bench.put("low", count=2)
        assert [await bench.inspector.position(task_id) for task_id in low] == [1, 2]


async def test_whoever_watches_a_task_is_told_once_when_it_ends(bench):
    task_id = await bench.put_one()
    with bench.raw.pubsub() as channel:
        channel.subscribe("hr:inbox:test")
        assert channel.get_message(timeout=30)["type"] == "subscribe"
        for _ in range(2):
            await bench.inspector.task(task_id, inbox="hr:inbox:test")
        await bench.complete(await bench.claim_one())
        bench.raw.publish("hr:inbox:test", "the end")
        heard = [channel.get_message(timeout=30)["data"] for _ in range(2)]
    assert heard == [task_id.encode(), b"the end"]


# ── a server in trouble ──────────────────────────────────────────────────────────────────────────────


async def test_with_memory_exhausted_new_tasks_are_refused_whole_and_the_rest_goes_on(tenant):
    with RedisServer(fake_clock=True) as server:
        server.clock.freeze()
        async with open_bench(server, tenant, CONFIG, WORKER) as bench:
            await bench.put(count=5, max_retries=0)
            done, dead, cancelled = await bench.claim(3)
            await bench.fail_attempt(dead)
            bench.raw.config_set("maxmemory", "1")

            before = bench.dump()
            with pytest.raises(OutOfMemory):
                await bench.put(count=3, idempotency_key="order-1", capabilities="gpu")
            with pytest.raises(OutOfMemory):
                await bench.queue.replay()
            assert bench.dump() == before

            assert (await bench.queue.heartbeat(WORKER, held=[(done.task_id, done.token)])).lost == []
            await bench.complete(done)
            assert await bench.queue.cancel([cancelled.task_id]) == ["cancelling"]
            assert await bench.settle(cancelled, Outcome.CANCELLED) is SettleStatus.SETTLED
            assert len(await bench.claim(5)) == 2
            server.clock.advance(CONFIG.lease_s)
            assert (await bench.queue.reclaim())[0] == 2
            server.clock.advance(CONFIG.result_retention_s)
            assert (await bench.queue.purge())[0] == 2
            await bench.inspector.stats()

            bench.raw.config_set("maxmemory", "0")
            await bench.put()


async def everything_everywhere(bench: Bench) -> ClaimedTask:
    """Bring the queue to where every verb has something to do; returns a task that the worker holds."""
    await bench.register("worker-silent")
    await bench.put("low", count=3)
    await bench.put("high", count=6, max_retries=0)
    tasks = await bench.claim(4)
    await bench.complete(tasks[0])
    await bench.fail_attempt(tasks[1])
    await bench.put("low", delay_s=5)
    bench.clock.advance(CONFIG.result_retention_s)
    await bench.register()
    return tasks[2]


Verb = Callable[[Bench, ClaimedTask], Awaitable[object]]

WRITERS: dict[str, Verb] = {
    "enqueue": lambda bench, held: bench.put(count=2, capabilities="gpu", idempotency_key="order-1"),
    "enqueue delayed": lambda bench, held: bench.put(delay_s=5),
    "claim": lambda bench, held: bench.claim(5),
    "settle": lambda bench, held: bench.settle(held, Outcome.COMPLETED),
    "retry": lambda bench, held: bench.settle(held, Outcome.RETRY),
    "forward": lambda bench, held: bench.queue.forward(),
    "reclaim": lambda bench, held: bench.queue.reclaim(),
    "promote": lambda bench, held: bench.queue.promote(),
    "cancel": lambda bench, held: bench.queue.cancel([held.task_id]),
    "replay": lambda bench, held: bench.queue.replay(),
    "purge": lambda bench, held: bench.queue.purge(),
}
NARROW_WRITERS: dict[str, Verb] = {
    "heartbeat": lambda bench, held: bench.queue.heartbeat(
        WORKER,
        held=[(held.task_id, held.token)],
    ),
    "stop": lambda bench, held: bench.queue.heartbeat(WORKER, status="stopped"),
    "drain": lambda bench, held: bench.queue.drain([WORKER], force=True),
    "pause": lambda bench, held: bench.queue.pause(),
    "resume": lambda bench, held: bench.queue.resume(),
    "define": lambda bench, held: bench.queue.define(
        QueueConfig("verbs", levels=CONFIG.levels[:1] + CONFIG.levels[2:])
    ),
    "watch": lambda bench, held: bench.inspector.task(held.task_id, inbox="hr:inbox:test"),
}


def spoil(bench: Bench, name: str) -> None:
    """Make one of the queue's keys something it is not."""
    bench.raw.delete(bench.key(name))
    bench.raw.set(bench.key(name), "not what you think")


@pytest.mark.parametrize("key", FIXED)
@pytest.mark.parametrize("verb", WRITERS)
async def test_a_key_of_the_wrong_type_is_found_before_the_first_write(bench, verb, key):
    held = await everything_everywhere(bench)
    spoil(bench, key)
    before = bench.dump()
    with pytest.raises(BackendError, match="WRONGTYPE"):
        await WRITERS[verb](bench, held)
    assert bench.dump() == before


@pytest.mark.parametrize("key", FIXED)
@pytest.mark.parametrize("verb", NARROW_WRITERS)
async def test_a_verb_that_needs_few_keys_works_without_the_others_or_writes_nothing(bench, verb, key):
    held = await everything_everywhere(bench)
    spoil(bench, key)
    before = bench.dump()
    try:
        await NARROW_WRITERS[verb](bench, held)
    except BackendError:
        assert bench.dump() == before


@pytest.mark.parametrize("verb", WRITERS | NARROW_WRITERS)
async def test_every_verb_has_something_to_do_in_the_queue_of_these_tests(bench, verb):
    held = await everything_everywhere(bench)
    before = bench.dump()
    await (WRITERS | NARROW_WRITERS)[verb](bench, held)
    assert bench.dump() != before
