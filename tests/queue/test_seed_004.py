"""Work in proportion 6 : 3 : 1 or in strict order, with short leases (``examples/seed_004_titanqueue.py``)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from examples.seed_004_titanqueue import CONFIG_STRICT, CONFIG_WEIGHTED
from headrace.model.errors import TaskNotFound
from headrace.model.outcomes import Outcome, SettleStatus
from headrace.model.states import TaskState
from tests.support.bench import WORKER, Bench, open_bench
from tests.support.chance import SIGNIFICANCE, chi_square, chi_square_p
from tests.support.topology import installed

SHARES = {"critical": 0.6, "default": 0.3, "low": 0.1}
RESCUER = "worker-2"


@pytest.fixture
async def weighted(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG_WEIGHTED, WORKER, RESCUER) as bench:
        yield bench


@pytest.fixture
async def strict(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG_STRICT, WORKER, RESCUER) as bench:
        yield bench


@pytest.fixture
def repeatable_draws() -> Iterator[None]:
    """The same random numbers in every run: a fair draw looks unfair once in a thousand times."""
    before = random.getstate()
    random.seed(20_250_102)
    yield
    random.setstate(before)


# ── which task next ──────────────────────────────────────────────────────────────────────────────────


def test_both_modes_have_the_same_levels_and_differ_in_the_selection_only():
    assert [(level.name, level.weight) for level in CONFIG_WEIGHTED.levels] == [
        ("critical", 6),
        ("default", 3),
        ("low", 1),
    ]
    assert CONFIG_STRICT.levels == CONFIG_WEIGHTED.levels
    assert (CONFIG_WEIGHTED.selection, CONFIG_STRICT.selection) == ("weighted", "strict")


async def test_a_hundred_evenly_spread_draws_are_60_critical_30_default_and_10_low(weighted):
    for level in SHARES:
        await weighted.put(level, count=100)
    tasks = await weighted.claim_drawing([(i + 0.5) / 100 for i in range(100)])
    assert Counter(task.level for task in tasks) == {"critical": 60, "default": 30, "low": 10}


@pytest.fixture
async def roomy(topology, tenant) -> AsyncIterator[Bench]:
    """The weighted queue on servers of its own: so many tasks would slow down everybody's look at the shared ones."""
    with installed(topology, frozen=True) as server:
        async with open_bench(server, tenant, CONFIG_WEIGHTED, WORKER) as bench:
            yield bench


async def test_ten_thousand_claims_are_shared_out_six_to_three_to_one(roomy, repeatable_draws):
    claims, batch = 10_000, 100
    for level, share in SHARES.items():
        # Eight standard deviations above its share: no level runs dry.
        spare = 8 * int((claims * share * (1 - share)) ** 0.5)
        await roomy.put(level, count=int(claims * share) + spare)
    drawn: Counter[str] = Counter()
    for _ in range(claims // batch):
        drawn.update(task.level for task in await roomy.claim(batch))
    assert drawn.total() == claims
    statistic = chi_square(drawn, SHARES)
    print(f"chi-square {statistic:.3f} with 2 degrees of freedom, p = {chi_square_p(statistic, 2):.3f}; {dict(drawn)}")
    assert chi_square_p(statistic, len(SHARES) - 1) > SIGNIFICANCE
    assert chi_square_p(chi_square(drawn, {"critical": 5, "default": 3, "low": 2}), 2) < SIGNIFICANCE


async def test_waiting_does_not_change_these_weights(weighted):
    await weighted.put("low", count=100)
    weighted.clock.advance(3600)
    for level in ("critical", "default"):
        await weighted.put(level, count=100)
    tasks = await weighted.claim_drawing([(i + 0.5) / 100 for i in range(100)])
    assert Counter(task.level for task in tasks) == {"critical": 60, "default": 30, "low": 10}


async def test_strict_mode_empties_the_higher_level_first(strict):
    for level in ("low", "default", "critical"):
        await strict.put(level, count=20)
        strict.clock.advance(60)
    received = [(await strict.claim_one()).level for _ in range(60)]
    assert received == ["critical"] * 20 + ["default"] * 20 + ["low"] * 20


async def test_strict_mode_looks_at_the_higher_level_again_for_every_task(strict):
    await strict.put("low", count=3)
    assert (await strict.claim_one()).level == "low"
    await strict.put("critical")
    assert [task.level for task in await strict.claim(2)] == ["critical", "low"]


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_lease_lasts_thirty_seconds_and_every_heartbeat_renews_it(weighted):
    task_id = await weighted.put_one()
    task = await weighted.claim_one()
    assert weighted.score("leases", task_id) == weighted.clock.now_us + 30_000_000
    for _ in range(12):
        weighted.clock.advance(CONFIG_WEIGHTED.heartbeat_s)
        reply = await weighted.queue.heartbeat(WORKER, held=[(task_id, task.token)])
        assert reply.lost == []
        assert weighted.score("leases", task_id) == weighted.clock.now_us + 30_000_000
        assert (await weighted.queue.reclaim())[0] == 0
    await weighted.complete(task)


async def test_a_heartbeat_renews_the_leases_it_names_and_no_others(weighted):
    await weighted.put(count=2)
    kept, forgotten = await weighted.claim(2)
    weighted.clock.advance(20)
    await weighted.queue.heartbeat(WORKER, held=[(kept.task_id, kept.token)])
    weighted.clock.advance(10)
    assert (await weighted.queue.reclaim())[0] == 1
    assert await weighted.state(kept.task_id) is TaskState.EXECUTING
    assert await weighted.state(forgotten.task_id) is TaskState.RETRYING


async def test_the_recoverer_returns_tasks_of_a_crashed_worker(weighted):
    ids = await weighted.put(count=3)
    await weighted.claim(3)
    weighted.clock.advance_us(30_000_000 - 1)
    assert await weighted.queue.reclaim() == (0, [])
    weighted.clock.advance_us(1)
    assert await weighted.queue.reclaim() == (3, [])
    weighted.clock.advance(1)
    assert await weighted.queue.forward() == 3
    tasks = await weighted.claim(3, worker=RESCUER)
    assert sorted(task.task_id for task in tasks) == sorted(ids)
    assert [task.attempt for task in tasks] == [2, 2, 2]


async def test_the_recoverer_takes_no_more_than_it_was_asked_to(weighted):
    await weighted.put(count=5)
    await weighted.claim(5)
    weighted.clock.advance(30)
    assert [(await weighted.queue.reclaim(limit=2))[0] for _ in range(4)] == [2, 2, 1, 0]


async def test_the_recoverer_archives_a_task_without_retries_left(weighted):
    task_id = await weighted.put_one(max_retries=0)
    await weighted.claim_one()
    weighted.clock.advance(30)
    await weighted.queue.reclaim()
    record = await weighted.record(task_id)
    assert (record.state, record.reason) == (TaskState.DEAD_LETTER, "max_retries_exceeded")
    assert record.problem is not None
    assert record.problem.type == "LeaseExpired"


async def test_the_crashed_worker_cannot_settle_what_was_recovered(weighted):
    await weighted.put()
    late = await weighted.claim_one()
    weighted.clock.advance(30)
    await weighted.queue.reclaim()
    assert await weighted.settle(late, Outcome.COMPLETED) is SettleStatus.LOST
    weighted.clock.advance(1)
    again = await weighted.claim_one(worker=RESCUER)
    assert again.token > late.token
    assert await weighted.settle(late, Outcome.COMPLETED) is SettleStatus.LOST
    await weighted.complete(again)


async def test_the_forwarder_moves_scheduled_and_retried_tasks_when_they_are_due(weighted):
    scheduled = await weighted.put_one(delay_s=1)
    retried = await weighted.put_one()
    await weighted.fail_attempt(await weighted.claim_one())
    assert await weighted.state(scheduled) is TaskState.SCHEDULED
    assert await weighted.state(retried) is TaskState.RETRYING
    assert await weighted.queue.forward() == 0
    weighted.clock.advance(1)
    assert await weighted.queue.forward(limit=1) == 1
    assert await weighted.queue.forward() == 1
    assert {await weighted.state(scheduled), await weighted.state(retried)} == {TaskState.QUEUED}


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_janitor_removes_completed_tasks_after_their_retention(weighted):
    ids = await weighted.put(count=3)
    for task in await weighted.claim(3):
        await weighted.complete(task)
    weighted.clock.advance_us(round(CONFIG_WEIGHTED.result_retention_s * 1e6) - 1)
    assert (await weighted.queue.purge())[0] == 0
    weighted.clock.advance_us(1)
    assert (await weighted.queue.purge(limit=2))[0] == 2
    assert (await weighted.queue.purge(limit=2))[0] == 1
    for task_id in ids:
        with pytest.raises(TaskNotFound):
            await weighted.record(task_id)
    assert weighted.raw.exists(weighted.key("finished")) == 0


async def test_the_janitor_leaves_archived_tasks_alone(weighted):
    task_id = await weighted.put_one(max_retries=0)
    await weighted.fail_attempt(await weighted.claim_one())
    weighted.clock.advance(400 * 86_400)
    assert (await weighted.queue.purge())[:2] == (0, 0)
    assert await weighted.state(task_id) is TaskState.DEAD_LETTER


async def test_a_failure_without_retries_left_is_archived_with_its_time(weighted):
    task_id = await weighted.put_one(max_retries=1)
    await weighted.fail_attempt(await weighted.claim_one())
    weighted.clock.advance(1)
    await weighted.fail_attempt(await weighted.claim_one())
    assert await weighted.state(task_id) is TaskState.DEAD_LETTER
    assert weighted.score("dead", task_id) == weighted.clock.now_us
    assert weighted.score("delayed", task_id) is None
