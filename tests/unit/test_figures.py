"""What can be read off a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.figures import LevelFigures, Percentiles, QueueStats, WorkerFigures, percentiles

NOTHING = Percentiles(0.0, 0.0, 0.0)


def test_without_samples_all_percentiles_are_zero():
    assert percentiles([]) == NOTHING


def test_one_sample_is_every_percentile():
    assert percentiles([0.25]) == Percentiles(0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(2, (1, 2, 2)), (10, (5, 10, 10)), (20, (10, 19, 20)), (100, (50, 95, 99)), (1000, (500, 950, 990))],
)
def test_percentiles_are_those_of_the_nearest_rank(count, expected):
    assert percentiles([float(n) for n in range(1, count + 1)]) == Percentiles(*expected)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.randoms())
def test_the_order_of_the_samples_does_not_matter_and_they_are_left_as_they_are(samples, random):
    expected = percentiles(samples)
    shuffled = list(samples)
    random.shuffle(shuffled)
    before = list(shuffled)
    assert percentiles(shuffled) == expected
    assert shuffled == before


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_a_percentile_is_one_of_the_samples_with_enough_of_them_below(samples):
    found = percentiles(samples)
    for percent, value in ((50, found.p50_s), (95, found.p95_s), (99, found.p99_s)):
        assert value in samples
        assert sum(sample <= value for sample in samples) * 100 >= percent * len(samples)
        assert sum(sample < value for sample in samples) * 100 < percent * len(samples)


def test_what_waits_is_the_sum_over_the_levels():
    stats = QueueStats(
        at_s=0.0,
        paused=False,
        levels={"high": LevelFigures(2, 1.0, None, None), "low": LevelFigures(3, 9.0, None, None)},
        executing=7,
        delayed=7,
        dead_letter=7,
        finished=7,
        workers=WorkerFigures(active=1, draining=0, dead=0, total_capacity=5, used_capacity=0),
        completed_last_minute=0,
        failed_last_minute=0,
        wait=NOTHING,
        run=NOTHING,
        counters={},
    )
    assert stats.waiting == 5
