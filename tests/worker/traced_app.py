"""The app of the tracing tests: handlers that enqueue, fail and say what is loaded."""

import os
import sys

from headrace import Headrace, Level, QueueConfig, RetryPolicy, TaskContext

app = Headrace(
    os.environ.get("HEADRACE_TEST_URL", "redis://localhost:6379/0"),
    tenant=os.environ.get("HEADRACE_TEST_TENANT", "traces"),
    queues=[
        QueueConfig(
            "jobs",
            levels=(Level("only", max_retries=5, timeout_s=60),),
            retry=RetryPolicy(base_s=0.02, max_s=0.1),
        )
    ],
)


@app.task(queue="jobs")
async def context(ctx: TaskContext) -> str:
    return ctx.traceparent


@app.task(queue="jobs")
async def context_from_loop() -> str:
    """Its child's trace context."""
    child = await context.enqueue()
    return child.id


@app.task(queue="jobs")
def context_from_thread() -> str:
    return context.blocking.enqueue().id


@app.task(queue="jobs", run_in="process")
def context_from_process() -> str:
    return context.blocking.enqueue().id


@app.task(queue="jobs")
async def fail_first(ctx: TaskContext, secret: str) -> int:
    if ctx.attempt < 3:
        raise ConnectionError("no route to the shop")
    return ctx.attempt


@app.task(queue="jobs")
def modules() -> list[str]:
    return sorted(sys.modules)
