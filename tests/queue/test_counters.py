"""What each transition counts of itself, by level and reason, as the pulse tells it."""

from __future__ import annotations

import pytest

from headrace.model.figures import LevelCounters
from headrace.model.outcomes import Outcome, Settlement
from tests.support.bench import CONFIG, OTHER, Bench, problem_text

LEVELS = CONFIG.level_names()


async def counted(bench: Bench) -> dict[str, LevelCounters]:
    """By level, and only those that differ from zero."""
    levels = (await bench.inspector.pulse()).counters.levels
    assert tuple(level.level for level in levels) == LEVELS
    return {level.level: level for level in levels if level != LevelCounters(level.level)}


async def lose(bench: Bench) -> None:
    """Claim a task and fall silent until its lease or its time is over; come back when the backoff is over, too."""
    await bench.claim_one()
    bench.clock.advance(CONFIG.lease_s)
    await bench.queue.reclaim()
    bench.clock.advance(CONFIG.retry.max_s)
    await bench.register()


async def test_a_new_queue_tells_of_every_level_that_nothing_has_happened(bench):
    counters = (await bench.inspector.pulse()).counters
    assert counters.levels == tuple(LevelCounters(level) for level in LEVELS)
    assert (counters.enqueued, counters.orphans) == (0, 0)
    assert counters.promoted == tuple((rule.source, rule.target, 0) for rule in CONFIG.promotion_rules)


async def test_completed_tasks_are_counted_by_level_and_whole_batches_at_once(bench):
    await bench.put("high", count=3)
    await bench.put("low", count=4)
    tasks = await bench.claim(7)
    await bench.queue.settle([Settlement(task.task_id, task.token, Outcome.COMPLETED, "1") for task in tasks])
    assert await counted(bench) == {
        "high": LevelCounters("high", completed=3),
        "low": LevelCounters("low", completed=4),
    }
    pulse = await bench.inspector.pulse()
    assert (pulse.counters.enqueued, pulse.finished) == (7, 7)


async def test_a_settle_that_arrives_twice_is_counted_once(bench):
    await bench.put_one("high")
    task = await bench.claim_one()
    for _ in range(2):
        await bench.settle(task, Outcome.COMPLETED)
    assert await counted(bench) == {"high": LevelCounters("high", completed=1)}


async def test_a_failure_for_good_is_no_dead_letter(bench):
    await bench.put_one("low")
    await bench.settle(await bench.claim_one(), Outcome.FAILED, body=problem_text())
    assert await counted(bench) == {"low": LevelCounters("low", failed=1)}


async def test_a_task_out_of_retries_is_a_dead_letter_after_an_attempt_that_was_tried_again(bench):
    await bench.put_one("low", max_retries=1)
    await bench.fail_attempt(await bench.claim_one())
    assert await counted(bench) == {"low": LevelCounters("low", retried_after_error=1)}
    bench.clock.advance(CONFIG.retry.max_s)
    await bench.register()
    await bench.fail_attempt(await bench.claim_one())
    found = (await counted(bench))["low"]
    assert found == LevelCounters("low", retried_after_error=1, dead_after_retries=1)
    assert found.dead_letters == 1


async def test_a_lost_worker_is_a_reason_of_its_own_and_so_is_poison(bench):
    await bench.put_one("high", max_retries=10)
    for _ in range(CONFIG.max_crashes - 1):
        await lose(bench)
    assert await counted(bench) == {"high": LevelCounters("high", retried_after_lease=CONFIG.max_crashes - 1)}
    await lose(bench)
    found = (await counted(bench))["high"]
    assert (found.dead_as_poison, found.dead_after_retries, found.dead_letters) == (1, 0, 1)


async def test_an_attempt_past_its_timeout_is_a_reason_of_its_own(bench):
    await bench.put_one("medium", max_retries=1, timeout_s=5)
    await lose(bench)
    assert await counted(bench) == {"medium": LevelCounters("medium", retried_after_timeout=1)}
    await lose(bench)
    assert (await counted(bench))["medium"].dead_after_retries == 1


async def test_a_repair_in_passing_counts_as_well(bench):
    await bench.put_one("high")
    await bench.claim_one()
    bench.clock.advance(CONFIG.lease_s)
    await bench.register(OTHER)
    await bench.claim(1, worker=OTHER)
    assert await counted(bench) == {"high": LevelCounters("high", retried_after_lease=1)}


async def test_a_promoted_task_counts_for_the_level_it_came_with(bench):
    await bench.put_one("low")
    bench.clock.advance(601)
    assert await bench.queue.promote() == {("low", "medium"): 1}
    await bench.register()
    task = await bench.claim_one()
    assert task.level == "medium"
    await bench.complete(task)
    assert await counted(bench) == {"low": LevelCounters("low", completed=1)}
    pulse = await bench.inspector.pulse()
    assert {(source, target): count for source, target, count in pulse.counters.promoted} == {
        ("low", "medium"): 1,
        ("medium", "high"): 0,
    }
    assert pulse.promoted == 1


@pytest.mark.parametrize("outcome", [Outcome.SNOOZED, Outcome.HANDED_BACK])
async def test_what_spends_no_attempt_is_counted_neither_way(bench, outcome):
    await bench.put_one("high")
    await bench.settle(await bench.claim_one(), outcome, after_s=5 if outcome is Outcome.SNOOZED else None)
    assert await counted(bench) == {}


async def test_a_cancelled_task_has_neither_completed_nor_failed(bench):
    running, waiting = await bench.put("high", count=2)
    task = await bench.claim_one()
    assert await bench.queue.cancel([running, waiting]) == ["cancelling", "cancelled"]
    await bench.settle(task, Outcome.RETRY)
    assert await counted(bench) == {}
    assert (await bench.inspector.pulse()).finished == 2


async def test_a_replay_takes_nothing_back(bench):
    task_id = await bench.put_one("high", max_retries=0)
    await bench.fail_attempt(await bench.claim_one())
    await bench.queue.replay([task_id])
    await bench.complete(await bench.claim_one())
    assert await counted(bench) == {"high": LevelCounters("high", completed=1, dead_after_retries=1)}


async def test_orphans_are_counted_when_they_are_found(bench):
    await bench.put_one()
    task = await bench.claim_one()
    bench.raw.zrem(bench.key("leases"), task.task_id)
    await bench.run("audit", {"cursor": "0", "count": 100_000})
    assert (await bench.inspector.pulse()).counters.orphans == 1


async def test_with_no_retention_the_counters_remain(bench_with):
    async with bench_with(result_retention_s=0) as bench:
        await bench.put_one("high")
        await bench.complete(await bench.claim_one())
        assert (await bench.inspector.pulse()).finished == 0
        assert await counted(bench) == {"high": LevelCounters("high", completed=1)}


async def test_the_sums_over_levels_are_what_is_counted_without_them(bench):
    for level in LEVELS:
        await bench.put(level, count=4, max_retries=0)
    for number, task in enumerate(await bench.claim(12)):
        await bench.settle(task, (Outcome.COMPLETED, Outcome.FAILED, Outcome.RETRY)[number % 3])
    levels = (await bench.inspector.pulse()).counters.levels
    counters = (await bench.inspector.stats()).counters
    assert sum(level.completed for level in levels) == counters["completed"] == 4
    assert sum(level.failed for level in levels) == counters["failed"] == 4
    assert sum(level.dead_letters for level in levels) == counters["dead_letter"] == 4
