"""Recovery: what a queue has due is done, and no more is asked of Redis than that.

A pulse says when the next lease ends, the next delayed task is due, the next silent worker counts as dead and the next
retention is over. Only what is due is acted on, in the bounded steps that workers use as well; so any number of workers
and the operator may do the same at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.figures import Pulse
from headrace.queue.queue import MAX_RETURNS_PER_CALL, MAX_TASKS_PER_CALL, Queue

_MOST_STEPS = 50
"""Per look: another queue's turn comes within a bounded time, and the rest is due a second later."""


@dataclass(frozen=True)
class Recovered:
    """What was found and mended in one look."""

    forwarded: int = 0
    reclaimed: int = 0
    dead_workers: tuple[str, ...] = ()
    purged: int = 0

    def __bool__(self) -> bool:
        return bool(self.forwarded or self.reclaimed or self.dead_workers or self.purged)


async def recover(queue: Queue, pulse: Pulse) -> Recovered:
    """Do what is due by this pulse."""
    forwarded = reclaimed = purged = 0
    dead_workers: list[str] = []
    if pulse.is_due(pulse.forward_at_s):
        for _ in range(_MOST_STEPS):
            moved = await queue.forward()
            forwarded += moved
            if moved < MAX_TASKS_PER_CALL:
                break
    if pulse.is_due(pulse.reclaim_at_s):
        for _ in range(_MOST_STEPS):
            taken_back, dead = await queue.reclaim()
            reclaimed += taken_back
            dead_workers += dead
            if taken_back < MAX_RETURNS_PER_CALL and len(dead) < MAX_RETURNS_PER_CALL:
                break
    if pulse.is_due(pulse.purge_at_s):
        for _ in range(_MOST_STEPS):
            deleted = await queue.purge()
            purged += sum(deleted)
            if MAX_TASKS_PER_CALL not in deleted:
                break
    return Recovered(forwarded, reclaimed, tuple(dead_workers), purged)
