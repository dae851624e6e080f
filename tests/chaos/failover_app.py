"""What the workers of the failover drill run. The mark of an execution goes to a server that nobody kills."""

import asyncio
import os

import redis.asyncio

from headrace import Headrace, Level, QueueConfig, RetryPolicy, TaskContext

URL = os.environ.get("HEADRACE_TEST_URL", "redis://localhost:6379/0")
MARKS_URL = os.environ.get("HEADRACE_TEST_MARKS_URL", URL)
TENANT = os.environ.get("HEADRACE_TEST_TENANT", "failover")

# Longer than a failover takes: a lease that ends is then the trace of a lost settle, not of an outage.
LEASE_S = 20.0

app = Headrace(
    URL,
    tenant=TENANT,
    queues=[
        QueueConfig(
            "jobs",
            levels=(Level("only", max_retries=100, timeout_s=300),),
            lease_s=LEASE_S,
            heartbeat_s=2.0,
            worker_dead_after_s=40.0,
            max_crashes=50,
            retry=RetryPolicy(base_s=0.05, max_s=1.0),
            result_retention_s=86_400,
            events_max=100,
        )
    ],
)

_marks: redis.asyncio.Redis | None = None


def executions_key(tenant: str) -> str:
    return f"executions:{{{tenant}}}"


@app.task(queue="jobs")
async def step(ctx: TaskContext, seconds: float) -> None:
    """Take a moment, then leave a mark: the work is done, whatever becomes of the settle."""
    global _marks
    if _marks is None:
        _marks = redis.asyncio.Redis.from_url(MARKS_URL)
    await asyncio.sleep(seconds)
    await _marks.hincrby(executions_key(TENANT), ctx.task_id, 1)
