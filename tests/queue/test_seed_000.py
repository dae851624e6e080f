"""The queue with five weighted levels, against its own tables (``examples/seed_000_weighted_lists.py``)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from examples.seed_000_weighted_lists import CONFIG
from headrace.model.selection import boost_factor, choose_level, effective_weights
from tests.support.bench import WORKER, Bench, open_bench
from tests.support.chance import SIGNIFICANCE, chi_square, chi_square_p
from tests.support.topology import installed

WAITED_S = {"critical": 5.0, "high": 10.0, "normal": 45.0, "idle": 90.0}
"""The situation of the worked example: how long the oldest task of each level has waited. Low is empty."""

FINAL_WEIGHTS = {"critical": 1.0, "high": 0.7, "normal": 0.6, "idle": 0.2}
SHARES = {"critical": 0.40, "high": 0.28, "normal": 0.24, "idle": 0.08}

BOOST_TABLE = [
    (0.0, 1.0),
    (29.999999, 1.0),
    (30.0, 1.5),
    (59.999999, 1.5),
    (60.0, 1.75),
    (89.999999, 1.75),
    (90.0, 2.0),
    (120.0, 2.0),
    (86_400.0, 2.0),
]


@pytest.fixture
async def bench(frozen_redis, tenant) -> AsyncIterator[Bench]:
    async with open_bench(frozen_redis, tenant, CONFIG, WORKER) as bench:
        yield bench


@pytest.fixture
def repeatable_draws() -> Iterator[None]:
    """The same random numbers in every run: a fair draw looks unfair once in a thousand times."""
    before = random.getstate()
    random.seed(20_250_101)
    yield
    random.setstate(before)


async def fill_as_in_the_example(bench: Bench, counts: dict[str, int]) -> None:
    """Enqueue so that afterwards each level's oldest task has waited as in `WAITED_S`."""
    now_s = 0.0
    last_s = max(WAITED_S.values())
    for level, waited_s in sorted(WAITED_S.items(), key=lambda item: -item[1]):
        bench.clock.advance(last_s - waited_s - now_s)
        now_s = last_s - waited_s
        await bench.put(level, count=counts[level])
    bench.clock.advance(last_s - now_s)


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────


def test_the_base_weights_are_those_of_the_table():
    assert {level.name: level.weight for level in CONFIG.levels} == {
        "critical": 1.0,
        "high": 0.7,
        "normal": 0.4,
        "low": 0.2,
        "idle": 0.1,
    }


@pytest.mark.parametrize(("waited_s", "factor"), BOOST_TABLE)
def test_the_boost_steps_up_at_30_60_and_90_seconds_and_is_capped(waited_s, factor):
    assert boost_factor(CONFIG.boosts, waited_s) == factor


@pytest.mark.parametrize(("waited_s", "weight"), [(0, 0.1), (29, 0.1), (30, 0.15), (60, 0.175), (90, 0.2), (999, 0.2)])
def test_an_idle_level_grows_from_a_tenth_to_a_fifth(waited_s, weight):
    weights = effective_weights(CONFIG.levels, CONFIG.boosts, {"idle": waited_s})
    assert weights == {"idle": pytest.approx(weight)}


def test_the_final_weights_of_the_example_come_out_and_the_empty_level_is_skipped():
    weights = effective_weights(CONFIG.levels, CONFIG.boosts, WAITED_S)
    assert weights == pytest.approx(FINAL_WEIGHTS)
    assert "low" not in weights


def test_the_probabilities_of_the_example_are_40_28_24_and_8_percent():
    weights = effective_weights(CONFIG.levels, CONFIG.boosts, WAITED_S)
    total = sum(weights.values())
    assert total == pytest.approx(2.5)
    assert {name: weight / total for name, weight in weights.items()} == pytest.approx(SHARES)


# ── the same tables through the claim script ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(("waited_s", "factor"), BOOST_TABLE)
async def test_the_script_changes_its_mind_exactly_where_the_boosted_weight_says(bench, waited_s, factor):
    await bench.put("idle", count=2)
    bench.clock.advance(waited_s)
    await bench.put("critical", count=2)
    # critical holds [0, edge), idle the rest.
    edge = 1.0 / (1.0 + 0.1 * factor)
    below, above = await bench.claim_drawing([edge - 1e-9, edge + 1e-9])
    assert (below.level, above.level) == ("critical", "idle")


async def test_a_thousand_evenly_spread_draws_hit_the_levels_400_280_240_and_80_times(bench):
    await fill_as_in_the_example(bench, dict.fromkeys(WAITED_S, 500))
    tasks = await bench.claim_drawing([(i + 0.5) / 1000 for i in range(1000)])
    assert Counter(task.level for task in tasks) == {"critical": 400, "high": 280, "normal": 240, "idle": 80}


async def test_the_script_and_the_pure_function_agree_on_every_draw(bench):
    await fill_as_in_the_example(bench, dict.fromkeys(WAITED_S, 600))
    source = random.Random(7)
    draws = [source.random() for _ in range(600)]
    tasks = await bench.claim_drawing(draws)
    assert [task.level for task in tasks] == [choose_level(CONFIG, WAITED_S, draw) for draw in draws]


@pytest.fixture
async def roomy_bench(topology, tenant) -> AsyncIterator[Bench]:
    """On servers of its own: a hundred thousand tasks would slow down everybody's look at the shared ones."""
    with installed(topology, frozen=True) as server:
        async with open_bench(server, tenant, CONFIG, WORKER) as bench:
            yield bench


@pytest.mark.slow
async def test_a_hundred_thousand_claims_follow_the_probabilities(roomy_bench, repeatable_draws):
    # Each level holds more than it can give (eight standard deviations above its share), so none runs dry
    # and the ages, and with them the weights, stay as they are from the first draw to the last.
    claims, batch = 100_000, 250
    spare = {level: 8 * int((claims * share * (1 - share)) ** 0.5) for level, share in SHARES.items()}
    counts = {level: int(claims * share) + spare[level] for level, share in SHARES.items()}
    await fill_as_in_the_example(roomy_bench, counts)
    drawn: Counter[str] = Counter()
    for _ in range(claims // batch):
        drawn.update(task.level for task in await roomy_bench.claim(batch))
    assert drawn.total() == claims
    statistic = chi_square(drawn, SHARES)
    print(f"chi-square {statistic:.3f} with 3 degrees of freedom, p = {chi_square_p(statistic, 3):.3f}; {dict(drawn)}")
    assert chi_square_p(statistic, len(SHARES) - 1) > SIGNIFICANCE
    # The judge is not asleep: the same draws do not fit the weights without their boosts.
    unboosted = {"critical": 1.0, "high": 0.7, "normal": 0.4, "idle": 0.1}
    assert chi_square_p(chi_square(drawn, unboosted), 3) < SIGNIFICANCE


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999999999])
async def test_with_one_level_filled_every_draw_leads_there(bench, draw):
    task_id = await bench.put_one("idle")
    (task,) = await bench.claim_drawing([draw])
    assert (task.task_id, task.level) == (task_id, "idle")


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999999999])
async def test_with_nothing_waiting_no_draw_finds_anything(bench, draw):
    assert await bench.claim_drawing([draw]) == []


async def test_a_level_that_runs_dry_in_the_middle_of_a_claim_leaves_the_draw(bench):
    await bench.put("critical")
    await bench.put("idle", count=3)
    tasks = await bench.claim_drawing([0.0, 0.0, 0.0, 0.0])
    assert [task.level for task in tasks] == ["critical", "idle", "idle", "idle"]


# ── order and figures ────────────────────────────────────────────────────────────────────────────────


async def test_within_a_level_the_oldest_task_goes_first(bench):
    sent = []
    for _ in range(20):
        sent.append(await bench.put_one("normal"))
        bench.clock.advance_us(1)
    received = [task.task_id for _ in range(4) for task in await bench.claim(5)]
    assert received == sent


async def test_tasks_of_one_call_keep_their_order_although_their_time_is_the_same(bench):
    sent = await bench.put("normal", count=20)
    assert [task.task_id for task in await bench.claim(20)] == sent


async def test_the_seven_tasks_of_the_complete_example_each_come_once_and_in_order_of_their_level(bench):
    sent = {
        "critical": await bench.put("critical", count=2),
        "high": await bench.put("high", count=1),
        "normal": await bench.put("normal", count=3),
        "idle": await bench.put("idle", count=1),
    }
    received: dict[str, list[str]] = {level: [] for level in sent}
    for _ in range(7):
        task = await bench.claim_one()
        received[task.level].append(task.task_id)
    assert received == sent
    assert await bench.claim(1) == []


async def test_the_statistics_know_when_each_level_was_last_filled_and_last_emptied(bench):
    await bench.put("critical")
    critical_in_s = bench.now_s
    bench.clock.advance(3)
    await bench.put("high")
    high_in_s = bench.now_s
    bench.clock.advance(2)
    await bench.claim_drawing([0.0])
    critical_out_s = bench.now_s
    bench.clock.advance(1)

    levels = (await bench.inspector.stats()).levels
    seen = {name: (figures.last_enqueue_at_s, figures.last_dequeue_at_s) for name, figures in levels.items()}
    assert seen == {
        "critical": (critical_in_s, critical_out_s),
        "high": (high_in_s, None),
        "normal": (None, None),
        "low": (None, None),
        "idle": (None, None),
    }
    # Under the names the hash itself uses, in µs.
    stats = bench.raw.hgetall(bench.key("stats"))
    assert int(stats[b"last_enqueue:critical"]) == round(critical_in_s * 1e6)
    assert int(stats[b"last_dequeue:critical"]) == round(critical_out_s * 1e6)


async def test_a_later_task_moves_the_time_of_the_last_enqueue_on(bench):
    await bench.put("low")
    bench.clock.advance(10)
    await bench.put("low")
    assert (await bench.inspector.stats()).levels["low"].last_enqueue_at_s == bench.now_s
