"""The arithmetic of chance against printed tables: a judge that is wrong would let anything pass."""

from __future__ import annotations

import pytest

from tests.support.chance import SIGNIFICANCE, chi_square, chi_square_p

# The upper 0.1 % points as they stand in printed tables; for two degrees it is -2 ln 0.001.
CRITICAL_AT_0_001 = {1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467, 5: 20.515, 6: 22.458}


@pytest.mark.parametrize(("degrees", "critical"), CRITICAL_AT_0_001.items())
def test_the_critical_values_are_those_of_the_printed_tables(degrees, critical):
    assert chi_square_p(critical, degrees) == pytest.approx(SIGNIFICANCE, rel=1e-3)
    assert chi_square_p(critical - 0.01, degrees) > SIGNIFICANCE > chi_square_p(critical + 0.01, degrees)


def test_a_perfect_draw_has_the_statistic_zero_and_is_certain_to_be_this_even():
    statistic = chi_square({"a": 600, "b": 300, "c": 100}, {"a": 6, "b": 3, "c": 1})
    assert statistic == 0
    assert chi_square_p(statistic, 2) == 1


def test_the_statistic_of_a_worked_example_is_found():
    # 60 throws of a die against ten expected each: (4² + 2² + 2² + 1² + 2² + 3²) / 10.
    observed = {"1": 14, "2": 8, "3": 8, "4": 11, "5": 12, "6": 7}
    assert chi_square(observed, dict.fromkeys(observed, 1.0)) == pytest.approx((16 + 4 + 4 + 1 + 4 + 9) / 10)


def test_a_crooked_draw_is_found_out():
    statistic = chi_square({"a": 6200, "b": 2900, "c": 900}, {"a": 6, "b": 3, "c": 1})
    assert chi_square_p(statistic, 2) < SIGNIFICANCE
