"""An app with one queue and three tasks: one does nothing, one takes its time, one fails.

``HEADRACE_REDIS_URL`` and ``HEADRACE_TENANT`` say where its tasks are.
"""

from __future__ import annotations

import asyncio
import os

from headrace import Fail, Headrace, QueueConfig

app = Headrace(
    tenant=os.environ.get("HEADRACE_TENANT", "samples"),
    # Shorter leases than usual: what a killed worker held is seen to be taken up by another within seconds.
    queues=[QueueConfig("samples", lease_s=6, heartbeat_s=2)],
)


@app.task(queue="samples")
async def nothing(number: int = 0) -> int:
    """Do nothing; the result is the argument."""
    return number


@app.task(queue="samples")
async def rest(seconds: float) -> float:
    """Take this long."""
    await asyncio.sleep(seconds)
    return seconds


@app.task(queue="samples")
async def fail(reason: str) -> None:
    """Fail for good: the task is not tried again."""
    raise Fail(reason)
