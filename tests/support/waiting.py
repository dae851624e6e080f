"""Waiting for conditions instead of for time.

A test that sleeps is either slow or flaky. These helpers poll a condition with a generous bound, so a
loaded machine makes a test slower and never red, and a broken program still fails with a clear message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis

POLL_S = 0.02


def wait_until(
    predicate: Callable[[], Any], timeout_s: float = 30.0, message: str = "the condition did not come true"
) -> Any:
    """Poll ``predicate`` until it returns something truthy, and return that."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        outcome = predicate()
        if outcome:
            return outcome
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{message} within {timeout_s:g} s (last: {outcome!r})")
        time.sleep(POLL_S)


async def eventually(
    predicate: Callable[[], Awaitable[Any]],
    timeout_s: float = 30.0,
    message: str = "the condition did not come true",
) -> Any:
    """Await ``predicate`` again and again until it returns something truthy, and return that."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        outcome = await predicate()
        if outcome:
            return outcome
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{message} within {timeout_s:g} s (last: {outcome!r})")
        await asyncio.sleep(POLL_S)


def unless_cut_off(predicate: Callable[[], Any]) -> Callable[[], Any]:
    """``predicate``, and False while servers hang up: a failover cuts the connections of those who watch it."""

    def asked() -> Any:
        try:
            return predicate()
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    return asked
