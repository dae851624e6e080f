"""What the workers of a drill run: tasks that leave a mark each time they are executed."""

import asyncio
import os

import redis.asyncio

from headrace import Headrace, Level, QueueConfig, RetryPolicy, TaskContext

URL = os.environ.get("HEADRACE_TEST_URL", "redis://localhost:6379/0")
TENANT = os.environ.get("HEADRACE_TEST_TENANT", "drill")

LEASE_S = 3.0

app = Headrace(
    URL,
    tenant=TENANT,
    queues=[
        QueueConfig(
            "jobs",
            levels=(Level("high", max_retries=100, timeout_s=300), Level("low", max_retries=100, timeout_s=300)),
            lease_s=LEASE_S,
            heartbeat_s=1.0,
            worker_dead_after_s=6.0,
            max_crashes=3,
            retry=RetryPolicy(base_s=0.05, max_s=1.0, jitter=0.5, timeout_factor=1.0),
            result_retention_s=86_400,
            events_max=100,
        )
    ],
)

_marks: redis.asyncio.Redis | None = None


def executions_key(tenant: str) -> str:
    return f"executions:{tenant}"


@app.task(queue="jobs")
async def step(ctx: TaskContext, seconds: float) -> int:
    """Leave a mark (outside of Headrace), take a moment, return the number of the attempt."""
    global _marks
    if _marks is None:
        _marks = redis.asyncio.Redis.from_url(URL)
    try:
        await _marks.hincrby(executions_key(TENANT), ctx.task_id, 1)
    except redis.RedisError:
        # The mark is for the report; while Redis is away the work itself is what the drill is about.
        await asyncio.sleep(0)
    await asyncio.sleep(seconds)
    return ctx.attempt


@app.task(queue="jobs")
def poison() -> None:
    """Take the whole worker down, every time."""
    os._exit(139)
