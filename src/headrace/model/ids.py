"""Task ids: UUIDv7, so that ids made one after the other sort in that order.

Ids are made by the client, not by Redis. An enqueue whose answer was lost can be sent again with the same
ids and stores nothing twice.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator

_lock = threading.Lock()
_last_tick = 0

_SUB_MS_BITS = 12
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The first digit of the random part carries the two bits that mark a UUID as one of RFC 9562."""


def new_task_id() -> str:
    """A UUIDv7 that is greater than every id this process made before, even if the clock goes back."""
    global _last_tick
    ms, rest_ns = divmod(time.time_ns(), 1_000_000)
    # 48 bits of milliseconds and 12 bits of their fraction; a tick is never used twice.
    tick = ms << _SUB_MS_BITS | (rest_ns << _SUB_MS_BITS) // 1_000_000
    with _lock:
        _last_tick = tick = max(tick, _last_tick + 1)
        tail = next(_tails)
    time_part = f"{tick:015x}"
    return f"{time_part[:8]}-{time_part[8:12]}-7{time_part[12:]}-{_VARIANT[tail[0]]}{tail[1:4]}-{tail[4:]}"


def _random_tails() -> Iterator[str]:
    """Sixteen random hexadecimal digits at a time; asking the system for each would take longer than all else."""
    while True:
        digits = os.urandom(8 * 512).hex()
        for start in range(0, len(digits), 16):
            yield digits[start : start + 16]


_tails = _random_tails()


def _start_anew() -> None:
    global _tails
    _tails = _random_tails()


# A forked child must not draw what its parent draws.
os.register_at_fork(after_in_child=_start_anew)


def is_task_id(value: str) -> bool:
    """Whether ``value`` is the canonical text of a UUID. Anything else cannot name a task."""
    try:
        return str(uuid.UUID(value)) == value
    except (ValueError, AttributeError, TypeError):
        return False
