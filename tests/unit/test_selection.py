"""Which level goes next, as a pure decision. ``tests/queue`` holds the script against the same functions."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.config import Boost, Level, QueueConfig
from headrace.model.selection import boost_factor, choose_level, effective_weights

LEVELS = (Level("a", weight=6), Level("b", weight=3), Level("c", weight=1))
WEIGHTED = QueueConfig("q", levels=LEVELS, selection="weighted")
STRICT = QueueConfig("q", levels=LEVELS, selection="strict")
BOOSTS = (Boost(10, 2.0), Boost(20, 5.0))

JUST_BELOW_ONE = math.nextafter(1.0, 0.0)

draws = st.floats(0, 1, exclude_max=True)
waits = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0, 1e9), max_size=3)


def test_without_boosts_nothing_is_boosted():
    assert boost_factor((), 1e9) == 1.0


@pytest.mark.parametrize(("waited_s", "factor"), [(0, 1), (9.999999, 1), (10, 2), (19.999999, 2), (20, 5), (1e9, 5)])
def test_the_last_boost_that_has_been_reached_counts(waited_s, factor):
    assert boost_factor(BOOSTS, waited_s) == factor


def test_a_boost_may_also_lower_a_weight():
    assert boost_factor((Boost(10, 3.0), Boost(20, 0.5)), 25) == 0.5


def test_every_level_is_boosted_by_its_own_oldest_task():
    assert effective_weights(LEVELS, BOOSTS, {"a": 0, "b": 10, "c": 20}) == {"a": 6, "b": 6, "c": 5}


def test_empty_levels_have_no_weight_and_the_order_is_that_of_the_levels():
    assert list(effective_weights(LEVELS, (), {"c": 0, "a": 0}).items()) == [("a", 6), ("c", 1)]


@pytest.mark.parametrize(
    ("waiting", "chosen"),
    [("abc", "a"), ("bc", "b"), ("c", "c"), ("", None)],
)
@pytest.mark.parametrize("draw", [0.0, 0.5, JUST_BELOW_ONE])
def test_strict_selection_takes_the_highest_level_that_has_a_task(waiting, chosen, draw):
    assert choose_level(STRICT, dict.fromkeys(waiting, 1.0), draw) == chosen


@pytest.mark.parametrize(
    ("draw", "chosen"),
    [(0.0, "a"), (0.599999, "a"), (0.600001, "b"), (0.899999, "b"), (0.900001, "c"), (JUST_BELOW_ONE, "c")],
)
def test_weighted_selection_divides_the_line_by_weight(draw, chosen):
    assert choose_level(WEIGHTED, {"a": 0, "b": 0, "c": 0}, draw) == chosen


def test_evenly_spread_draws_are_shared_out_exactly_by_weight():
    chosen = Counter(choose_level(WEIGHTED, {"a": 0, "b": 0, "c": 0}, (i + 0.5) / 1000) for i in range(1000))
    assert chosen == {"a": 600, "b": 300, "c": 100}


def test_weighted_selection_from_nothing_is_nothing():
    assert choose_level(WEIGHTED, {}, 0.5) is None


@given(waits, draws)
def test_what_is_chosen_always_has_a_task(waiting, draw):
    chosen = choose_level(WEIGHTED, waiting, draw)
    assert chosen in waiting if waiting else chosen is None


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=32), draws)
def test_rounding_never_leaves_a_draw_without_a_level(weights, draw):
    levels = tuple(Level(f"l{i}", weight=weight) for i, weight in enumerate(weights))
    config = QueueConfig("q", levels=levels, selection="weighted")
    assert choose_level(config, {level.name: 0.0 for level in levels}, draw) in config.level_names()
    assert choose_level(config, {level.name: 0.0 for level in levels}, JUST_BELOW_ONE) in config.level_names()


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7]), min_size=2, max_size=10), draws)
def test_the_weights_are_added_up_one_by_one_as_the_script_does_it(weights, draw):
    levels = tuple(Level(f"l{i}", weight=weight) for i, weight in enumerate(weights))
    total = 0.0
    for weight in weights:
        total = total + weight
    point, expected = draw * total, levels[-1].name
    for level in levels:
        point -= level.weight
        if point < 0:
            expected = level.name
            break
    config = QueueConfig("q", levels=levels, selection="weighted")
    assert choose_level(config, {level.name: 0.0 for level in levels}, draw) == expected
