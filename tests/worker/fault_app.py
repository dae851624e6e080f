"""The app that worker processes of the fault tests run. Each execution leaves a line in Redis.

The lines are written with a client of the test's own, outside of Headrace: they say what really ran.
"""

import asyncio
import os
import time

import redis
import redis.asyncio

from headrace import Headrace, Level, QueueConfig, RetryPolicy, TaskContext

URL = os.environ.get("HEADRACE_TEST_URL", "redis://localhost:6379/0")
# A single server, also where the queue is on many: whoever writes marks must not need Headrace to find it.
MARKS_URL = os.environ.get("HEADRACE_TEST_MARKS_URL", URL)
TENANT = os.environ.get("HEADRACE_TEST_TENANT", "faults")

LEASE_S = 2.0

app = Headrace(
    URL,
    tenant=TENANT,
    queues=[
        QueueConfig(
            "jobs",
            levels=(Level("only", max_retries=20, timeout_s=120),),
            lease_s=LEASE_S,
            heartbeat_s=0.5,
            worker_dead_after_s=4.0,
            # Above what these tests do on purpose, so that no task ends as poison.
            max_crashes=50,
            retry=RetryPolicy(base_s=0.05, max_s=0.5, timeout_factor=1.0),
        )
    ],
)


def ran_key(tenant: str) -> str:
    return f"ran:{{{tenant}}}"


def gate_key(tenant: str) -> str:
    return f"gate:{{{tenant}}}"


def _note(ctx: TaskContext, what: str) -> None:
    with redis.Redis.from_url(MARKS_URL) as client:
        client.rpush(ran_key(TENANT), f"{what}:{ctx.task_id}:{ctx.attempt}:{os.getpid()}")


@app.task(queue="jobs")
async def nap(ctx: TaskContext, seconds: float) -> int:
    """Sleep in the loop."""
    _note(ctx, "began")
    await asyncio.sleep(seconds)
    _note(ctx, "ended")
    return os.getpid()


@app.task(queue="jobs")
async def at_gate(ctx: TaskContext) -> int:
    """Run until the test opens the gate."""
    _note(ctx, "began")
    client = redis.asyncio.Redis.from_url(MARKS_URL)
    try:
        while not await client.exists(gate_key(TENANT)):
            await asyncio.sleep(0.05)
    finally:
        await client.aclose()
    return os.getpid()


@app.task(queue="jobs")
async def block_the_loop(ctx: TaskContext, seconds: float) -> int:
    """What nobody should do in an async handler."""
    _note(ctx, "began")
    time.sleep(seconds)  # noqa: ASYNC251 - this is the fault
    return ctx.attempt


@app.task(queue="jobs")
def stubborn(ctx: TaskContext, seconds: float) -> int:
    """A sync handler that does not look at its context."""
    _note(ctx, "began")
    time.sleep(seconds)
    return os.getpid()


@app.task(queue="jobs")
async def deaf(ctx: TaskContext, seconds: float) -> int:
    """An async handler that swallows its cancellation."""
    _note(ctx, "began")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue
    return os.getpid()
