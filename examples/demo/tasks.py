"""The demonstration's queue and its one task."""

import asyncio
import os

from headrace import Boost, Headrace, Level, QueueConfig, RetryPolicy, TaskContext

LEVELS = ("critical", "high", "normal", "low", "idle")

app = Headrace(
    os.environ.get("HEADRACE_REDIS_URL", "redis://localhost:6379/0"),
    tenant="demo",
    queues=[
        QueueConfig(
            "jobs",
            levels=tuple(Level(name, weight) for name, weight in zip(LEVELS, (1.0, 0.7, 0.4, 0.2, 0.1), strict=True)),
            selection="weighted",
            boosts=(Boost(30, 1.5), Boost(60, 1.75), Boost(90, 2.0)),
            retry=RetryPolicy(base_s=0.2, max_s=2.0, jitter=0.5),
        )
    ],
)


@app.task(queue="jobs")
async def work(ctx: TaskContext, number: int) -> int:
    """Take a moment; every twentieth task fails at its first attempt."""
    await asyncio.sleep(0.01 + number % 5 * 0.01)
    if number % 20 == 7 and ctx.attempt == 1:
        raise ConnectionError("the first attempt failed, as arranged")
    return number
