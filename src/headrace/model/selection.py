"""Which level goes next: the decision that ``claim.lua`` takes, as pure functions.

The script is what runs; these functions explain it (``headrace explain``, documentation) and are what the
tests hold it against, to the last bit: both sides do the same arithmetic in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .config import Boost, Level, QueueConfig


def boost_factor(boosts: Sequence[Boost], waited_s: float) -> float:
    """How much a level's weight grows when its oldest task has waited ``waited_s``."""
    factor = 1.0
    for boost in boosts:
        if waited_s >= boost.after_s:
            factor = boost.factor
    return factor


def effective_weights(
    levels: Sequence[Level], boosts: Sequence[Boost], oldest_wait_s: Mapping[str, float]
) -> dict[str, float]:
    """Weight per non-empty level. ``oldest_wait_s`` has an entry for each level that holds a task."""
    return {
        level.name: level.weight * boost_factor(boosts, oldest_wait_s[level.name])
        for level in levels
        if level.name in oldest_wait_s
    }


def choose_level(config: QueueConfig, oldest_wait_s: Mapping[str, float], random: float) -> str | None:
    """The level the next task comes from, or None when all are empty. ``random`` is in [0, 1)."""
    if config.selection == "strict":
        return next((name for name in config.level_names() if name in oldest_wait_s), None)
    weights = effective_weights(config.levels, config.boosts, oldest_wait_s)
    if not weights:
        return None
    total = 0.0
    for weight in weights.values():
        total += weight  # not sum(): it compensates rounding errors since Python 3.12, and Lua does not
    point = random * total
    for name, weight in weights.items():
        point -= weight
        if point < 0:
            return name
    return name
