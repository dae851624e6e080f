"""Task ids: UUIDv7, so that ids made one after the other sort in that order.

Ids are made by the client, not by Redis. An enqueue whose answer was lost can be sent again with the same
ids and stores nothing twice.
"""

from __future__ import annotations

import os
import threading
import time
import uuid

_lock = threading.Lock()
_last_tick = 0

_SUB_MS_BITS = 12


def new_task_id() -> str:
    """A UUIDv7 that is greater than every id this process made before, even if the clock goes back."""
    global _last_tick
    now_ns = time.time_ns()
    # 48 bits of milliseconds and 12 bits of their fraction; a tick is never used twice.
    tick = (now_ns // 1_000_000 << _SUB_MS_BITS) | ((now_ns % 1_000_000 << _SUB_MS_BITS) // 1_000_000)
    with _lock:
        _last_tick = tick = max(tick, _last_tick + 1)
    value = (tick >> _SUB_MS_BITS) << 80 | 0x7 << 76 | (tick & 0xFFF) << 64 | 0b10 << 62
    value |= int.from_bytes(os.urandom(8)) >> 2
    return str(uuid.UUID(int=value))


def is_task_id(value: str) -> bool:
    """Whether ``value`` is the canonical text of a UUID. Anything else cannot name a task."""
    try:
        return str(uuid.UUID(value)) == value
    except (ValueError, AttributeError, TypeError):
        return False
