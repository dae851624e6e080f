"""The arithmetic of chance: whether a draw that should be fair can be called so."""

from __future__ import annotations

import math
from collections.abc import Mapping

SIGNIFICANCE = 0.001
"""How unlikely an outcome must be before a fair draw is called unfair."""


def chi_square(observed: Mapping[str, int], shares: Mapping[str, float]) -> float:
    """Pearson's statistic Σ (observed - expected)² / expected over the categories in ``shares``."""
    assert set(observed) <= set(shares), "something was drawn that should never come up"
    total, whole = sum(observed.values()), sum(shares.values())
    expected = {name: total * share / whole for name, share in shares.items()}
    return sum((observed.get(name, 0) - count) ** 2 / count for name, count in expected.items())


def chi_square_p(statistic: float, degrees: int) -> float:
    """How likely a fair draw is to look at least this uneven: the survival function of chi-square.

    It is the regularised upper gamma function Q(degrees/2, statistic/2), built up from its closed forms
    Q(1/2, z) = erfc(√z) and Q(1, z) = e^-z by the recurrence Q(a + 1, z) = Q(a, z) + z^a e^-z / Γ(a + 1).
    """
    z = statistic / 2
    a, value = (1.0, math.exp(-z)) if degrees % 2 == 0 else (0.5, math.erfc(math.sqrt(z)))
    while a < degrees / 2:
        value += z**a * math.exp(-z) / math.gamma(a + 1)
        a += 1
    return value
