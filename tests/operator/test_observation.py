"""What is remembered between two looks: what flows and what only came once, who is idle, what was needed lately."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.observation import BUCKET_S, BUCKETS, MANY_BUCKETS, REMEMBERED_OF_A_FLOW, Flow, PoolHistory

START_S = 1_000.0
MINUTE_S = BUCKETS * BUCKET_S


def watched(arrivals: Iterable[int], *, since_s: float = START_S) -> tuple[Flow, float]:
    """A queue into which so many tasks come, second by second, and now. None of them is claimed."""
    flow, waiting, now_s = Flow(), 0, since_s
    for came in arrivals:
        waiting += came
        flow.observe(waiting=waiting, claimed=0, executing=0, runs=0, now_s=now_s)
        now_s += 1
    return flow, now_s


# ── flows ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_minute_of_chance_does_not_change_what_usually_comes():
    flow, now_s = watched([0] + [2] * int(MANY_BUCKETS * BUCKET_S) + [2, 2, 2, 2, 3] * BUCKETS)
    assert flow.arriving_per_s(now_s) == 2


def test_a_flow_that_has_grown_is_believed_within_a_minute():
    flow, now_s = watched([0] + [2] * int(MANY_BUCKETS * BUCKET_S) + [20] * 40)
    assert flow.arriving_per_s(now_s) == 20


def test_what_comes_every_second_is_a_flow():
    flow, now_s = watched([0] + [7] * 70)
    assert flow.arriving_per_s(now_s) == 7


def test_a_flow_is_one_however_soon_its_tasks_are_claimed():
    flow = Flow()
    for second in range(70):
        flow.observe(waiting=second % 3, claimed=7 * second - second % 3, executing=5, runs=second, now_s=second)
    assert flow.arriving_per_s(70) == 7


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=5), st.integers(1, 60))
def test_a_burst_is_no_flow(burst, after):
    """However large it is, and whether it comes within one second or within five."""
    flow, now_s = watched([0] * after + burst + [0] * 60)
    for later_s in range(61):
        assert flow.arriving_per_s(now_s - 60 + later_s) == 0


def test_a_burst_on_top_of_a_flow_leaves_the_flow_what_it_is():
    flow, now_s = watched([0] + [2] * 30 + [5_000] + [2] * 40)
    assert flow.arriving_per_s(now_s) == 2


def test_a_flow_that_ends_is_forgotten_within_a_minute():
    flow, now_s = watched([0] + [2] * 70 + [0] * 60)
    assert flow.arriving_per_s(now_s) == 0


def test_a_flow_is_not_believed_before_it_has_lasted():
    flow, now_s = watched([0] + [2] * 25)
    assert flow.arriving_per_s(now_s) == 0


def test_nobody_has_looked_for_a_while():
    """What came meanwhile came at some time, and is no flow; what lies more than a minute back is none any more."""
    flow, now_s = watched([0] + [2] * 70)
    assert flow.arriving_per_s(now_s + 10 * MINUTE_S) == 0
    flow.observe(waiting=1_000_000, claimed=0, executing=0, runs=0, now_s=now_s + 10 * MINUTE_S)
    assert flow.arriving_per_s(now_s + 10 * MINUTE_S + BUCKET_S) == 0


def test_what_was_there_at_the_first_look_has_not_come_since():
    flow, now_s = watched([5_000] + [0] * 70)
    assert flow.arriving_per_s(now_s) == 0


def test_a_flow_that_has_never_been_looked_at():
    assert (Flow().arriving_per_s(START_S), Flow().standstill_s(START_S)) == (0, 0)


def test_a_redis_that_counts_anew_is_neither_a_burst_nor_a_drought():
    flow, claimed = Flow(), 1_000_000
    for second in range(90):
        claimed = 0 if second == 60 else claimed + 3
        flow.observe(waiting=0, claimed=claimed, executing=3, runs=0, now_s=START_S + second)
    assert flow.arriving_per_s(START_S + 90) == 3


@given(
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 9), st.floats(0, 20)), max_size=80)
)
def test_whatever_is_seen_no_flow_is_negative(seen):
    flow, now_s = Flow(), START_S
    for waiting, claimed, executing, passed_s in seen:
        now_s += passed_s
        flow.observe(waiting=waiting, claimed=claimed, executing=executing, runs=claimed, now_s=now_s)
        assert flow.arriving_per_s(now_s) >= 0
        assert 0 <= flow.standstill_s(now_s) <= now_s - START_S


# ── standing still ───────────────────────────────────────────────────────────────────────────────────


def at_work(flow: Flow, now_s: float, *, executing: int = 1, runs: int = 0) -> float:
    flow.observe(waiting=0, claimed=0, executing=executing, runs=runs, now_s=now_s)
    return flow.standstill_s(now_s)


def test_tasks_that_do_not_end():
    flow = Flow()
    assert [at_work(flow, START_S + second) for second in range(4)] == [0, 1, 2, 3]
    assert flow.standstill_s(START_S + 100) == 100


def test_a_task_that_ends_begins_the_count_anew():
    flow = Flow()
    assert [at_work(flow, 0, runs=5), at_work(flow, 9, runs=5), at_work(flow, 10, runs=6)] == [0, 9, 0]
    assert at_work(flow, 12, runs=6) == 2


def test_a_count_of_runs_that_is_set_back_is_an_end_as_well():
    """The queue halves it now and then, so that it follows what tasks have become."""
    flow = Flow()
    assert [at_work(flow, 0, runs=1_000), at_work(flow, 9, runs=500), at_work(flow, 10, runs=500)] == [0, 0, 1]


def test_nothing_stands_still_while_nothing_executes():
    flow = Flow()
    at_work(flow, 0)
    assert at_work(flow, 50, executing=0) == 0
    assert flow.standstill_s(60) == 0
    assert at_work(flow, 70) == 0, "and it begins with what executes next"


# ── idle times ───────────────────────────────────────────────────────────────────────────────────────


def test_an_idle_time_goes_on_by_our_own_clock():
    history = PoolHistory(START_S)
    assert history.idle_s("w", 500.0, 20.0, START_S) == 20
    assert history.idle_s("w", 500.0, 21.0, START_S + 1) == 21
    assert history.idle_s("w", 500.0, 4_000.0, START_S + 2) == 22, "Redis' clock leapt ahead"
    assert history.idle_s("w", 500.0, -4_000.0, START_S + 3) == 23, "and back"


def test_a_worker_that_was_busy_meanwhile_is_idle_anew():
    history = PoolHistory(START_S)
    history.idle_s("w", 500.0, 20.0, START_S)
    assert history.idle_s("w", 530.0, 2.0, START_S + 30) == 2


def test_a_clock_that_is_behind_makes_no_negative_time():
    assert PoolHistory(START_S).idle_s("w", 500.0, -7.0, START_S) == 0


def test_each_worker_has_its_own_time_and_those_that_are_gone_are_forgotten():
    history = PoolHistory(START_S)
    assert (history.idle_s("a", 1.0, 10.0, START_S), history.idle_s("b", 1.0, 20.0, START_S)) == (10, 20)
    history.forget_all_but({"b"})
    assert (history.idle_s("a", 1.0, 3.0, START_S + 5), history.idle_s("b", 1.0, 3.0, START_S + 5)) == (3, 25)


# ── what was needed lately ───────────────────────────────────────────────────────────────────────────


def test_until_the_window_has_been_seen_all_there_are_count_as_needed():
    history = PoolHistory(START_S)
    history.needed(1, START_S)
    assert history.recent_need(120, 5, START_S + 119) == 5
    assert history.recent_need(120, 5, START_S + 120) == 1


def test_what_a_flow_needed_is_remembered_for_longer_until_that_has_been_seen():
    history = PoolHistory(START_S)
    history.needed(3, START_S + 200, is_flowing=True)
    assert (history.recent_need(120, 5, START_S + 299), history.recent_need(120, 5, START_S + 300)) == (5, 3)


def test_what_a_burst_needed_is_soon_forgotten_and_one_worker_stays():
    history = PoolHistory(START_S - 1_000)
    history.needed(9, START_S)
    history.needed(0, START_S + 1)
    at_s = (30, 30.5, 120, 120.5)
    assert [history.recent_need(120, 9, START_S + passed_s) for passed_s in at_s] == [9, 1, 1, 0]


def test_what_a_flow_needed_is_remembered_until_the_flow_has_ended():
    history = PoolHistory(START_S - 1_000)
    history.needed(4, START_S, is_flowing=True)
    history.needed(2, START_S + 150, is_flowing=True)
    history.needed(1, START_S + 200)
    at_s = (270, 271)
    assert [history.recent_need(120, 9, START_S + passed_s) for passed_s in at_s] == [4, 1]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=60),
    st.integers(0, 120),
)
def test_what_a_flow_needed_lately_is_the_most_within_the_window(needs, idle_seconds):
    history, now_s = PoolHistory(START_S), START_S + 1_000
    seen: list[tuple[float, int]] = []
    for passed_s, need in needs:
        now_s += passed_s
        seen.append((now_s, need))
        history.needed(need, now_s, is_flowing=True)
        expected = max(need for at_s, need in seen if at_s >= now_s - REMEMBERED_OF_A_FLOW * idle_seconds)
        assert history.recent_need(idle_seconds, 99, now_s) == expected
    # When nobody has looked for long, the last that is known still holds.
    if seen:
        assert history.recent_need(idle_seconds, 99, now_s + 10_000) == seen[-1][1]


def test_a_pool_that_was_never_looked_at_needed_nothing():
    assert PoolHistory(START_S).recent_need(120, 0, START_S + 500) == 0


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-9, 9)), max_size=40),
    st.integers(1, 120),
)
def test_steps_count_for_as_long_as_the_window_is(steps, window_s):
    history, now_s = PoolHistory(START_S), START_S
    seen: list[tuple[float, int]] = []
    for passed_s, change in steps:
        now_s += passed_s
        history.stepped(change, now_s)
        seen.append((now_s, change))
        recent = [change for at_s, change in seen if at_s > now_s - window_s]
        assert history.added(window_s, now_s) == sum(change for change in recent if change > 0)
        assert history.removed(window_s, now_s) == -sum(change for change in recent if change < 0)
    assert (history.added(window_s, now_s + window_s), history.removed(window_s, now_s + window_s)) == (0, 0)


@pytest.mark.parametrize(("passed_s", "added"), [(0.0, 3), (59.9, 3), (60.0, 0)])
def test_a_step_is_over_when_its_seconds_are(passed_s, added):
    history = PoolHistory(START_S)
    history.stepped(3, START_S)
    assert history.added(60.0, START_S + passed_s) == added
