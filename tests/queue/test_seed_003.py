"""Three levels with promotion by age, against the numbers of its design (``examples/seed_003_agreed_design.py``)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from examples.seed_003_agreed_design import CONFIG, WORKER_CAPACITY
from headrace.model.config import DEFAULT_LEVELS, DEFAULT_PROMOTIONS, QueueConfig
from headrace.model.errors import TaskNotFound
from headrace.model.outcomes import Outcome, SettleStatus
from headrace.model.states import TaskState, WorkerState
from tests.support.bench import WORKER, Bench, new_task, open_bench

MINUTE_S = 60.0
DAY_S = 86_400.0
OTHER = "worker-2"

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
async def bench(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG, WORKER) as bench:
        yield bench


async def states_of_workers(bench: Bench) -> dict[str, WorkerState]:
    return {record.worker: record.state for record in await bench.inspector.workers()}


async def bury(bench: Bench, level: str = "low") -> str:
    """A task that has failed as often as it may."""
    task_id = await bench.put_one(level, max_retries=0)
    await bench.fail_attempt(await bench.claim_one())
    return task_id


# ── the configuration ────────────────────────────────────────────────────────────────────────────────


def test_the_levels_have_the_retries_and_timeouts_of_the_table():
    table = {level.name: (level.max_retries, level.timeout_s) for level in CONFIG.levels}
    assert table == {"high": (5, 300), "medium": (3, 600), "low": (2, 900)}


def test_these_levels_and_promotions_are_what_a_queue_has_by_default():
    assert CONFIG.levels == DEFAULT_LEVELS
    assert CONFIG.promotions == DEFAULT_PROMOTIONS
    bare = QueueConfig("bare")
    assert (bare.levels, bare.promotions, bare.promotion_interval_s) == (CONFIG.levels, CONFIG.promotions, MINUTE_S)


@pytest.mark.parametrize(("level", "retries", "timeout_s"), [("high", 5, 300), ("medium", 3, 600), ("low", 2, 900)])
async def test_a_task_takes_retries_and_timeout_from_its_level(bench, level, retries, timeout_s):
    record = await bench.record(await bench.put_one(level))
    assert (record.max_retries, record.timeout_s) == (retries, timeout_s)


async def test_a_task_may_bring_its_own_timeout_and_retries(bench):
    record = await bench.record(await bench.put_one("high", timeout_s=600, max_retries=1))
    assert (record.max_retries, record.timeout_s) == (1, 600)


# ── polling ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_poll_takes_high_before_medium_before_low_up_to_the_free_capacity(bench):
    low = await bench.put("low", count=4)
    medium = await bench.put("medium", count=2)
    high = await bench.put("high", count=2)
    assert [task.task_id for task in await bench.claim(3)] == [*high, medium[0]]
    assert [task.task_id for task in await bench.claim(3)] == [medium[1], *low[:2]]


async def test_a_worker_of_capacity_five_gets_five_tasks(bench):
    await bench.put("high", count=7)
    assert len(await bench.claim(WORKER_CAPACITY)) == 5
    workers = (await bench.inspector.stats()).workers
    assert (workers.total_capacity, workers.used_capacity) == (5, 5)


async def test_a_claimed_task_is_executing_and_assigned(bench):
    task_id = await bench.put_one("high")
    await bench.claim_one()
    record = await bench.record(task_id)
    assert (record.state, record.worker, record.started_at_s) == (TaskState.EXECUTING, WORKER, bench.now_s)


async def test_two_workers_never_get_the_same_task(bench):
    await bench.register(OTHER)
    await bench.put("high", count=10)
    ours = {task.task_id for task in await bench.claim(5)}
    theirs = {task.task_id for task in await bench.claim(5, worker=OTHER)}
    assert len(ours | theirs) == 10


# ── capabilities ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_gpu_task_goes_past_workers_without_a_gpu_and_stays_in_its_place(bench):
    await bench.register(OTHER, capabilities="gpu")
    gpu = await bench.put_one("high", capabilities="gpu")
    bench.clock.advance(1)
    plain = await bench.put_one("high")
    assert [task.task_id for task in await bench.claim(5)] == [plain]
    assert bench.score("ready:high:gpu", gpu) == bench.clock.now_us - 1_000_000
    assert [task.task_id for task in await bench.claim(5, worker=OTHER)] == [gpu]


async def test_a_worker_needs_every_capability_that_a_task_asks_for(bench):
    await bench.register(WORKER, capabilities="gpu")
    await bench.register(OTHER, capabilities="cpu-intensive,gpu,ssd")
    await bench.put_one("high", capabilities="cpu-intensive,gpu")
    assert await bench.claim(1) == []
    assert len(await bench.claim(1, worker=OTHER)) == 1


async def test_a_gpu_worker_takes_plain_and_gpu_tasks_of_a_level_in_order_of_age(bench):
    await bench.register(OTHER, capabilities="gpu")
    sent = []
    for capabilities in ("", "gpu", "", "gpu", "gpu", ""):
        sent.append(await bench.put_one("medium", capabilities=capabilities))
        bench.clock.advance(1)
    assert [task.task_id for task in await bench.claim(6, worker=OTHER)] == sent


async def test_plain_and_gpu_tasks_of_the_same_instant_go_in_the_order_of_their_ids(bench):
    await bench.register(OTHER, capabilities="gpu,ssd")
    tasks = [new_task("medium", capabilities=capset) for capset in ("gpu", "", "ssd", "gpu", "", "ssd", "gpu")]
    await bench.queue.enqueue(tasks)
    assert [task.task_id for task in await bench.claim(7, worker=OTHER)] == [task.task_id for task in tasks]


async def test_a_gpu_worker_takes_a_plain_high_task_before_an_older_low_gpu_task(bench):
    await bench.register(OTHER, capabilities="gpu")
    low = await bench.put_one("low", capabilities="gpu")
    bench.clock.advance(60)
    high = await bench.put_one("high")
    assert [task.task_id for task in await bench.claim(2, worker=OTHER)] == [high, low]


# ── promotion ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("source", "target", "after_s"), [("low", "medium", 600), ("medium", "high", 1200)])
async def test_a_task_is_promoted_when_it_has_waited_long_enough_and_keeps_its_time(bench, source, target, after_s):
    task_id = await bench.put_one(source)
    created_us = bench.clock.now_us
    bench.clock.advance_us(after_s * 1_000_000 - 1)
    assert await bench.queue.promote(force=True) == {}
    bench.clock.advance_us(1)
    assert await bench.queue.promote(force=True) == {(source, target): 1}
    assert bench.score(f"ready:{target}:", task_id) == created_us
    assert bench.score(f"ready:{source}:", task_id) is None
    record = await bench.record(task_id)
    assert (record.priority, record.effective_priority, record.state) == (source, target, TaskState.QUEUED)


async def test_promotion_runs_once_a_minute_however_often_it_is_asked_for(bench):
    await bench.put("low", count=250)
    bench.clock.advance(600)
    assert await bench.queue.promote() == {("low", "medium"): 100}
    assert await bench.queue.promote() == {}
    bench.clock.advance_us(60_000_000 - 1)
    assert await bench.queue.promote() == {}
    bench.clock.advance_us(1)
    assert await bench.queue.promote() == {("low", "medium"): 100}


async def test_low_tasks_are_promoted_a_hundred_at_a_time_oldest_first(bench):
    ids = await bench.put("low", count=250)
    bench.clock.advance(600)
    moved = []
    for _ in range(4):
        moved.append(await bench.queue.promote())
        bench.clock.advance(MINUTE_S)
    assert moved == [{("low", "medium"): 100}, {("low", "medium"): 100}, {("low", "medium"): 50}, {}]
    assert [task.task_id for task in await bench.claim(250)] == ids


async def test_medium_tasks_are_promoted_fifty_at_a_time(bench):
    await bench.put("medium", count=120)
    bench.clock.advance(1200)
    moved = []
    for _ in range(4):
        moved.append(await bench.queue.promote())
        bench.clock.advance(MINUTE_S)
    assert moved == [{("medium", "high"): 50}, {("medium", "high"): 50}, {("medium", "high"): 20}, {}]


async def test_a_batch_is_shared_by_all_capability_sets(bench):
    await bench.put("low", count=80)
    await bench.put("low", count=80, capabilities="gpu")
    bench.clock.advance(600)
    assert await bench.queue.promote() == {("low", "medium"): 100}
    depths = {name: figures.depth for name, figures in (await bench.inspector.stats()).levels.items()}
    assert depths == {"high": 0, "medium": 100, "low": 60}


@pytest.mark.parametrize(("first", "second"), [("", "gpu"), ("gpu", "")])
async def test_a_batch_takes_the_oldest_whatever_capabilities_they_need(bench, first, second):
    older = await bench.put("low", count=100, capabilities=first)
    bench.clock.advance(1)
    await bench.put("low", count=100, capabilities=second)
    bench.clock.advance(600)
    await bench.queue.promote()
    assert {(await bench.record(task_id)).effective_priority for task_id in older} == {"medium"}
    assert (await bench.inspector.stats()).levels["low"].depth == 100


async def test_promotions_are_counted_by_their_way(bench):
    await bench.put("low", count=3)
    bench.clock.advance(1200)
    await bench.queue.promote()
    counters = (await bench.inspector.stats()).counters
    assert (counters["promoted:low:medium"], counters["promoted:medium:high"]) == (3, 3)


async def test_a_promoted_task_goes_before_younger_tasks_of_its_new_level(bench):
    low = await bench.put_one("low")
    bench.clock.advance(600)
    medium = await bench.put_one("medium")
    await bench.queue.promote()
    tasks = await bench.claim(2)
    assert [(task.task_id, task.level) for task in tasks] == [(low, "medium"), (medium, "medium")]


@pytest.mark.parametrize("level", ["low", "medium"])
async def test_under_constant_high_load_no_task_waits_for_thirty_minutes(bench, level):
    task_id = await bench.put_one(level)
    created_s = bench.now_s
    await bench.put("high", count=10)
    while True:
        # One worker, one task every ten seconds, and a new high task for each that is taken.
        claimed = await bench.claim_one()
        if claimed.task_id == task_id:
            break
        await bench.complete(claimed)
        await bench.put_one("high")
        bench.clock.advance(10)
        await bench.queue.promote()
        assert bench.now_s - created_s < 30 * MINUTE_S
    # It did have to wait for the promotion: there was always something high.
    assert 20 * MINUTE_S <= bench.now_s - created_s <= 20 * MINUTE_S + CONFIG.promotion_interval_s
    assert (claimed.level, (await bench.record(task_id)).priority) == ("high", level)


# ── retry ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_task_is_queued_again_at_once_with_one_retry_more(bench):
    task_id = await bench.put_one("high")
    created_us = bench.clock.now_us
    bench.clock.advance(7)
    await bench.fail_attempt(await bench.claim_one())
    record = await bench.record(task_id)
    assert (record.state, record.retry_count, record.worker, record.started_at_s) == (TaskState.QUEUED, 1, None, None)
    assert bench.score("ready:high:", task_id) == created_us


async def test_a_promoted_task_that_fails_returns_to_the_level_it_was_sent_to(bench):
    task_id = await bench.put_one("low")
    created_us = bench.clock.now_us
    bench.clock.advance(1200)
    await bench.queue.promote()
    task = await bench.claim_one()
    assert task.level == "high"
    await bench.fail_attempt(task)
    record = await bench.record(task_id)
    assert (record.priority, record.effective_priority) == ("low", "low")
    assert bench.score("ready:low:", task_id) == created_us


async def test_every_retry_has_half_as_much_time_again(bench):
    task_id = await bench.put_one("high")
    timeouts_s = []
    for _ in range(6):
        task = await bench.claim_one()
        timeouts_s.append(task.timeout_s)
        assert (await bench.record(task_id)).timeout_s == task.timeout_s
        await bench.fail_attempt(task)
    assert timeouts_s == [300, 450, 675, 1012.5, 1518.75, 2278.125]


@pytest.mark.parametrize(("level", "max_retries"), [("high", 5), ("medium", 3), ("low", 2)])
async def test_one_failure_more_than_the_retries_makes_a_dead_letter(bench, level, max_retries):
    task_id = await bench.put_one(level)
    for _ in range(max_retries):
        await bench.fail_attempt(await bench.claim_one())
        assert await bench.state(task_id) is TaskState.QUEUED
    await bench.fail_attempt(await bench.claim_one())
    record = await bench.record(task_id)
    assert (record.state, record.reason) == (TaskState.DEAD_LETTER, "max_retries_exceeded")


async def test_an_error_that_is_not_retriable_ends_the_task_at_once(bench):
    task_id = await bench.put_one("high")
    await bench.settle(await bench.claim_one(), Outcome.FAILED)
    record = await bench.record(task_id)
    assert (record.state, record.retry_count, record.finished_at_s) == (TaskState.FAILED, 0, bench.now_s)


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_that_misses_three_heartbeats_is_dead_and_its_tasks_are_requeued(bench):
    ids = await bench.put("high", count=3)
    await bench.claim(3)
    bench.clock.advance_us(90_000_000 - 1)
    assert await bench.queue.reclaim() == (0, [])
    assert await states_of_workers(bench) == {WORKER: WorkerState.ACTIVE}

    bench.clock.advance_us(1)
    assert await bench.queue.reclaim() == (3, [WORKER])
    assert await states_of_workers(bench) == {WORKER: WorkerState.DEAD}
    for task_id in ids:
        record = await bench.record(task_id)
        assert (record.state, record.retry_count, record.worker) == (TaskState.QUEUED, 1, None)
    figures = (await bench.inspector.stats()).workers
    assert (figures.active, figures.dead, figures.total_capacity, figures.used_capacity) == (0, 1, 0, 0)


async def test_a_dead_worker_gets_no_tasks_until_it_is_heard_of_again(bench):
    bench.clock.advance(90)
    await bench.queue.reclaim()
    await bench.put("high")
    reply = await bench.ask()
    assert (reply.status, reply.tasks) == ("unregistered", [])
    await bench.register()
    assert await states_of_workers(bench) == {WORKER: WorkerState.ACTIVE}
    assert len(await bench.claim(1)) == 1


async def test_a_heartbeat_every_thirty_seconds_keeps_worker_and_task(bench):
    await bench.put("medium")
    task = await bench.claim_one()
    for _ in range(19):
        bench.clock.advance(CONFIG.heartbeat_s)
        reply = await bench.queue.heartbeat(WORKER, capacity=5, held=[(task.task_id, task.token)])
        assert (reply.lost, reply.draining) == ([], False)
        assert await bench.queue.reclaim() == (0, [])
    await bench.complete(task)


async def test_a_task_that_runs_past_its_timeout_is_taken_back_from_a_living_worker(bench):
    task_id = await bench.put_one("high")
    task = await bench.claim_one()
    for _ in range(9):
        bench.clock.advance(CONFIG.heartbeat_s)
        await bench.queue.heartbeat(WORKER, capacity=5, held=[(task_id, task.token)])
    bench.clock.advance_us(30_000_000 - 1)
    assert await bench.queue.reclaim() == (0, [])
    bench.clock.advance_us(1)
    assert await bench.queue.reclaim() == (1, [])

    record = await bench.record(task_id)
    assert (record.state, record.retry_count, record.history[0].reason) == (TaskState.QUEUED, 1, "timeout")
    reply = await bench.queue.heartbeat(WORKER, capacity=5, held=[(task_id, task.token)])
    assert reply.lost == [task_id]
    assert await bench.settle(task, Outcome.COMPLETED) is SettleStatus.LOST
    assert await bench.state(task_id) is TaskState.QUEUED


async def test_a_draining_worker_gets_no_new_tasks_and_finishes_what_it_has(bench):
    await bench.put("high", count=2)
    task = await bench.claim_one()
    assert await bench.queue.drain([WORKER], force=True) == ["draining"]
    reply = await bench.ask(5)
    assert (reply.status, reply.tasks) == ("draining", [])
    assert await states_of_workers(bench) == {WORKER: WorkerState.DRAINING}
    await bench.complete(task)


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_dead_letter_lives_for_thirty_days(bench):
    task_id = await bury(bench)
    assert bench.score("dead", task_id) == bench.clock.now_us
    bench.clock.advance_us(round(30 * DAY_S * 1e6) - 1)
    assert (await bench.queue.purge())[1] == 0
    assert await bench.state(task_id) is TaskState.DEAD_LETTER
    bench.clock.advance_us(1)
    assert (await bench.queue.purge())[1] == 1
    with pytest.raises(TaskNotFound):
        await bench.record(task_id)
    assert bench.score("dead", task_id) is None


async def test_a_replay_queues_the_task_anew_with_its_retries_reset(bench):
    task_id = await bench.put_one("low")
    for _ in range(3):
        await bench.fail_attempt(await bench.claim_one())
    bench.clock.advance(DAY_S)
    assert await bench.queue.replay([task_id]) == ([task_id], [])
    record = await bench.record(task_id)
    assert (record.state, record.retry_count, record.timeout_s) == (TaskState.QUEUED, 0, 900)
    assert (record.reason, record.problem, record.finished_at_s) == ("", None, None)
    assert len(record.history) == 3
    assert await bench.inspector.dead_letters() == []
    # All of its retries are there again.
    for _ in range(3):
        assert await bench.state(task_id) is TaskState.QUEUED
        await bench.fail_attempt(await bench.claim_one())
    assert await bench.state(task_id) is TaskState.DEAD_LETTER


async def test_a_replay_without_names_takes_the_oldest_and_leaves_the_rest(bench):
    ids = []
    for _ in range(3):
        ids.append(await bury(bench))
        bench.clock.advance(1)
    assert await bench.queue.replay(limit=2) == (ids[:2], [])
    assert [letter.task_id for letter in await bench.inspector.dead_letters()] == ids[2:]


async def test_only_dead_letters_can_be_replayed(bench):
    waiting = await bench.put_one("high")
    assert await bench.queue.replay([waiting]) == ([], [(waiting, "queued")])
    assert (await bench.inspector.stats()).waiting == 1


# ── idempotency ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_idempotency_window_is_24_hours(bench):
    first, second, third = (new_task("high", idempotency_key="video-7") for _ in range(3))
    await bench.queue.enqueue([first])
    bench.clock.advance(DAY_S - 1)
    (existing,) = await bench.queue.enqueue([second])
    assert (existing.task_id, existing.duplicate) == (first.task_id, True)
    bench.clock.advance(2)
    (fresh,) = await bench.queue.enqueue([third])
    assert (fresh.task_id, fresh.duplicate) == (third.task_id, False)


# ── what the API shows ───────────────────────────────────────────────────────────────────────────────


async def test_the_queue_position_counts_everything_that_goes_first(bench):
    low = await bench.put("low", count=2)
    medium = await bench.put("medium", count=2)
    high = await bench.put("high", count=2)
    positions = [await bench.inspector.position(task_id) for task_id in [*high, *medium, *low]]
    assert positions == [1, 2, 3, 4, 5, 6]
    await bench.claim(2)
    assert [await bench.inspector.position(task_id) for task_id in [high[0], medium[0], low[1]]] == [0, 1, 4]


async def test_the_position_counts_older_tasks_of_the_level_that_need_other_capabilities(bench):
    await bench.put("high", capabilities="gpu")
    bench.clock.advance(1)
    plain = await bench.put_one("high")
    bench.clock.advance(1)
    await bench.put("high", capabilities="gpu")
    assert await bench.inspector.position(plain) == 2


async def test_the_statistics_have_depth_and_age_per_level_and_the_workers(bench):
    await bench.register(OTHER)
    await bench.put("low", count=3)
    bench.clock.advance(260)
    await bench.put("medium", count=2)
    bench.clock.advance(275)
    await bench.put("high", count=2)
    bench.clock.advance(45)
    (done,) = await bench.claim(1)
    await bench.complete(done)
    await bench.claim(1)
    await bench.queue.drain([OTHER])

    stats = await bench.inspector.stats()
    assert list(stats.levels) == ["high", "medium", "low"]
    assert {name: (level.depth, level.oldest_age_s) for name, level in stats.levels.items()} == {
        "high": (0, 0),
        "medium": (2, 320),
        "low": (3, 580),
    }
    assert msgspec.to_builtins(stats.workers) == {
        "active": 1,
        "draining": 1,
        "dead": 0,
        "total_capacity": 10,
        "used_capacity": 1,
    }
    assert (stats.completed_last_minute, stats.failed_last_minute) == (1, 0)
    assert (stats.waiting, stats.executing, stats.finished, stats.delayed, stats.dead_letter) == (5, 1, 1, 0, 0)


async def test_a_record_has_the_fields_of_a_task(bench):
    traceparent = TRACEPARENT
    task_id = await bench.put_one("low", args=["clip.mp4"], capabilities="gpu", traceparent=traceparent)
    await bench.register(capabilities="gpu")
    created_s = bench.now_s
    bench.clock.advance(1)
    task = await bench.claim_one()
    started_s = bench.now_s
    bench.clock.advance(2)
    await bench.settle(task, Outcome.COMPLETED, body='{"frames":250}')

    record = await bench.record(task_id)
    assert (record.task_id, record.queue, record.type, record.args) == (task_id, "tasks", "work", ["clip.mp4"])
    assert (record.priority, record.effective_priority, record.capabilities) == ("low", "low", ("gpu",))
    assert (record.created_at_s, record.started_at_s, record.finished_at_s) == (created_s, started_s, bench.now_s)
    assert (record.worker, record.result, record.problem) == (WORKER, {"frames": 250}, None)
    assert record.traceparent == traceparent


async def test_the_trace_reaches_the_worker_with_the_task(bench):
    traceparent = TRACEPARENT
    await bench.put_one("high", traceparent=traceparent)
    task = await bench.claim_one()
    assert msgspec.json.decode(task.message)["traceparent"] == traceparent


# ── cancellation ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_queued_task_is_cancelled_at_once(bench):
    task_id = await bench.put_one("high")
    assert await bench.queue.cancel([task_id]) == ["cancelled"]
    assert await bench.state(task_id) is TaskState.CANCELLED
    assert await bench.claim(1) == []
    assert await bench.queue.cancel([task_id]) == ["cancelled"]


async def test_a_promoted_task_is_cancelled_where_it_waits_now(bench):
    task_id = await bench.put_one("low")
    bench.clock.advance(600)
    await bench.queue.promote()
    assert await bench.queue.cancel([task_id]) == ["cancelled"]
    assert await bench.claim(1) == []


async def test_an_executing_task_is_asked_to_stop_and_is_cancelled_when_its_worker_has(bench):
    task_id = await bench.put_one("high")
    task = await bench.claim_one()
    with bench.raw.pubsub() as channel:
        channel.subscribe(bench.keys.cancel_channel)
        assert channel.get_message(timeout=30)["type"] == "subscribe"
        assert await bench.queue.cancel([task_id]) == ["cancelling"]
        assert channel.get_message(timeout=30)["data"] == task_id.encode()
    record = await bench.record(task_id)
    assert (record.state, record.cancel_requested) == (TaskState.EXECUTING, True)
    # A worker that missed the message hears of it with its heartbeat.
    reply = await bench.queue.heartbeat(WORKER, capacity=5, held=[(task_id, task.token)])
    assert reply.cancelled == [task_id]
    assert await bench.settle(task, Outcome.CANCELLED) is SettleStatus.SETTLED
    assert await bench.state(task_id) is TaskState.CANCELLED


async def test_a_cancelled_task_whose_worker_died_is_cancelled_and_not_retried(bench):
    task_id = await bench.put_one("high")
    await bench.claim_one()
    await bench.queue.cancel([task_id])
    bench.clock.advance(90)
    assert await bench.queue.reclaim() == (1, [WORKER])
    record = await bench.record(task_id)
    assert (record.state, record.retry_count) == (TaskState.CANCELLED, 0)
