"""Promotion: what has waited too long moves up, level by level, in the batches that the queue's configuration names.

The queue itself keeps the interval, so a worker that was quicker has done the work and nothing is promoted twice.

**The bound.** Let a task wait in a level whose rule promotes after A seconds, B at a time, every I seconds. When fewer
than B tasks of that level become overdue per interval, the task moves up at the first promotion after A: at most A + I
after it began to wait there. It keeps its place in time, so on the next level it is judged by its whole waiting time:
where thresholds rise along the way (10 minutes, then 20), it is overdue there after the larger of the two, and not
after their sum. So no task waits longer for the top level than the sum of the thresholds on its way plus one interval
per step; with the default levels that is 600 + 1200 + 2 x 60 seconds. What comes in faster than a batch per interval
adds to that; the condition ``Starving`` says when it does.
"""

from __future__ import annotations

from headrace.model.figures import Pulse
from headrace.queue.queue import Queue


async def promote(queue: Queue, pulse: Pulse) -> dict[tuple[str, str], int]:
    """Promote if it is time; returns how many tasks moved, by (from, to)."""
    return await queue.promote() if pulse.is_due(pulse.promote_at_s) else {}
