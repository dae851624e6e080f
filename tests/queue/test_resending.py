"""What is sent again or comes too late: the first answer stands, and nothing is changed a second time."""

from __future__ import annotations

import pytest

from headrace.model.ids import new_task_id
from headrace.model.outcomes import Outcome, Settlement, SettleStatus
from headrace.model.states import TaskState
from tests.support.bench import CONFIG, WORKER, new_task

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


async def test_an_enqueue_that_is_sent_again_is_known_where_nothing_is_kept(bench_with):
    async with bench_with(result_retention_s=0) as bench:
        tasks = [new_task("high"), new_task("low")]
        first = await bench.queue.enqueue(tasks)
        for _ in tasks:
            await bench.complete(await bench.claim_one())
        assert await bench.queue.enqueue(tasks) == first
        assert await bench.claim(2) == [], "both have run and are gone; running them again would be twice"
        bench.clock.advance(61)
        await bench.queue.enqueue(tasks)
        assert len(await bench.claim(2)) == 2, "nobody resends after a minute"


# ── claim ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_claim_that_is_sent_again_gets_the_same_tasks_with_the_same_tokens(bench):
    await bench.put(count=5)
    first = await bench.queue.claim(WORKER, 3, number=7)
    before = bench.dump()
    again = await bench.queue.claim(WORKER, 3, number=7)
    assert again.tasks == first.tasks
    assert bench.dump() == before
    assert (await bench.worker()).load == 3


async def test_each_lane_of_a_worker_has_numbers_of_its_own(bench):
    await bench.put(count=4)
    first = await bench.queue.claim(WORKER, 2, number=7, lane=0)
    second = await bench.queue.claim(WORKER, 2, number=7, lane=1)
    assert {task.task_id for task in first.tasks}.isdisjoint(task.task_id for task in second.tasks)
    assert (await bench.queue.claim(WORKER, 2, number=7, lane=0)).tasks == first.tasks
    assert (await bench.queue.claim(WORKER, 2, number=7, lane=1)).tasks == second.tasks


async def test_a_claim_that_was_overtaken_gets_nothing(bench):
    await bench.put(count=2)
    await bench.queue.claim(WORKER, 1, number=8)
    late = await bench.queue.claim(WORKER, 1, number=7)
    assert (late.status, late.tasks) == ("ok", [])
    assert (await bench.worker()).load == 1


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
