"""How long to wait before a retry, and how long the retry may take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.config import MAX_DURATION_S, RetryPolicy
from headrace.model.retry import attempt_timeout_s, backoff_s

retries_allowed = st.integers(0, 1000)


@pytest.mark.parametrize(("retries", "delay_s"), [(0, 0.5), (1, 1), (2, 2), (5, 16), (6, 20), (1000, 20)])
def test_the_delay_doubles_until_it_reaches_its_maximum(retries, delay_s):
    assert backoff_s(RetryPolicy(base_s=0.5, max_s=20), retries) == delay_s


@given(retries_allowed)
def test_a_base_of_zero_never_waits(retries):
    assert backoff_s(RetryPolicy(base_s=0), retries) == 0


@given(retries_allowed, st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_only_takes_off_and_at_most_its_share(retries, jitter, draw):
    full_s = backoff_s(RetryPolicy(), retries)
    delay_s = backoff_s(RetryPolicy(jitter=jitter), retries, draw)
    assert full_s * (1 - jitter) <= delay_s <= full_s


def test_jitter_uses_its_whole_share():
    policy = RetryPolicy(base_s=8, jitter=0.25)
    assert [backoff_s(policy, 0, draw) for draw in (0.0, 0.5, 1.0)] == [8, 7, 6]


@pytest.mark.parametrize(("retries", "timeout_s"), [(0, 300), (1, 450), (2, 675), (3, 1012.5)])
def test_every_retry_has_half_as_much_time_again_by_default(retries, timeout_s):
    assert attempt_timeout_s(RetryPolicy(), 300, retries) == timeout_s


def test_a_factor_of_one_leaves_the_timeout_as_it_is():
    assert attempt_timeout_s(RetryPolicy(timeout_factor=1), 300, 1000) == 300


@given(st.floats(1, 10), st.floats(1e-6, MAX_DURATION_S), retries_allowed)
def test_however_often_it_is_stretched_a_timeout_stays_a_time(factor, timeout_s, retries):
    stretched_s = attempt_timeout_s(RetryPolicy(timeout_factor=factor), timeout_s, retries)
    assert timeout_s <= stretched_s <= MAX_DURATION_S


def test_a_timeout_past_all_numbers_is_the_longest_there_is():
    assert attempt_timeout_s(RetryPolicy(timeout_factor=10), 1, 1000) == MAX_DURATION_S
