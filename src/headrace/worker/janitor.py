"""Keeping the queues healthy with no operator: recovery, promotion, purging.

Any number of workers and the operator may do this at once. The scripts are bounded, and promotion keeps
its own interval.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import structlog

from headrace.model.errors import BackendError
from headrace.queue.queue import MAX_RETURNS_PER_CALL, MAX_TASKS_PER_CALL, Queue

_EVERY_S = 15.0
_log = structlog.get_logger(__name__)


async def keep_healthy(queues: Sequence[Queue]) -> None:
    """Look after ``queues``; runs until cancelled."""
    while True:
        # Spread over the interval, so that a fleet that started together does not come together.
        await asyncio.sleep(random.uniform(0.5, 1.0) * _EVERY_S)
        for queue in queues:
            try:
                await clean_once(queue)
            except BackendError as error:
                _log.warning("janitor could not reach Redis", queue=queue.name, error=str(error))


async def clean_once(queue: Queue) -> None:
    """One round over one queue, in bounded steps."""
    while (await queue.reclaim())[0] == MAX_RETURNS_PER_CALL:
        pass
    await queue.promote()
    while MAX_TASKS_PER_CALL in await queue.purge():
        pass
