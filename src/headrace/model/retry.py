"""How long to wait, and how long an attempt may take: the arithmetic of ``lib/attempts.lua``."""

from __future__ import annotations

from .config import MAX_DURATION_S, RetryPolicy


def backoff_s(policy: RetryPolicy, retries: int, random: float = 0.0) -> float:
    """The delay before the next attempt of a task that has been retried ``retries`` times."""
    # Past 2^64 the cap has long been reached; a larger exponent would only overflow.
    delay_s = min(policy.base_s * 2.0 ** min(retries, 64), policy.max_s)
    return delay_s * (1.0 - policy.jitter * random)


def attempt_timeout_s(policy: RetryPolicy, timeout_s: float, retries: int) -> float:
    """How long the attempt after ``retries`` retries may run."""
    try:
        return min(timeout_s * policy.timeout_factor**retries, MAX_DURATION_S)
    except OverflowError:
        return MAX_DURATION_S
