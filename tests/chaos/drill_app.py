"""What the workers of a drill run. Every handler leaves a mark as it begins and as it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace import Headrace, Level, QueueConfig, Retry, RetryPolicy, TaskContext
from headrace.model.config import stored_config
from tests.chaos.marks import MarkWriter

QUEUE = "jobs"
LEVELS = ("high", "low")
MEBIBYTE = 1 << 20


def queue_config(*, lease_s: float, max_crashes: int) -> QueueConfig:
    """The queue of a drill. Finished tasks stay for a day, so that each can be looked at until the end."""
    return QueueConfig(
        QUEUE,
        levels=tuple(Level(name, max_retries=1000, timeout_s=600) for name in LEVELS),
        lease_s=lease_s,
        heartbeat_s=lease_s / 3,
        worker_dead_after_s=lease_s * 2,
        max_crashes=max_crashes,
        retry=RetryPolicy(base_s=0.05, max_s=1.0, jitter=0.5, timeout_factor=1.0),
        result_retention_s=86_400,
        events_max=100,
    )


def worker_environment(config: QueueConfig, marks: Path) -> dict[str, str]:
    """How a drill tells its workers which queue they serve and where marks go."""
    return {"HEADRACE_TEST_QUEUE": msgspec.json.encode(config).decode(), "HEADRACE_TEST_MARKS": str(marks)}


def _declared_queue() -> QueueConfig:
    text = os.environ.get("HEADRACE_TEST_QUEUE")
    return stored_config(text) if text else queue_config(lease_s=3.0, max_crashes=3)


def make_app() -> Headrace:
    """An app with the drill's tasks; a worker closes its app's connections, so each worker needs one of its own."""
    made = Headrace(
        os.environ.get("HEADRACE_TEST_URL", "redis://localhost:6379/0"),
        tenant=os.environ.get("HEADRACE_TEST_TENANT", "drill"),
        queues=[_declared_queue()],
    )
    for handler in (step, block, crash_once, eat_memory, retry_later, outlive_timeout, wall_clock, poison):
        made.task(queue=QUEUE)(handler)
    return made


_writer: MarkWriter | None = None


@contextlib.contextmanager
def _marked(ctx: TaskContext) -> Iterator[None]:
    global _writer
    if _writer is None:
        _writer = MarkWriter(Path(os.environ["HEADRACE_TEST_MARKS"]))
    _writer.begins(ctx.task_id)
    try:
        yield
    finally:
        _writer.ends(ctx.task_id)


async def step(ctx: TaskContext, seconds: float) -> int:
    """Take a moment and return the number of the attempt, by which a settle that came too late is recognised."""
    with _marked(ctx):
        await asyncio.sleep(seconds)
    return ctx.attempt


async def block(ctx: TaskContext, seconds: float) -> int:
    """Hold up the worker's event loop."""
    with _marked(ctx):
        time.sleep(seconds)  # noqa: ASYNC251 - the fault itself
    return ctx.attempt


async def crash_once(ctx: TaskContext, how: str) -> int:
    """Take the worker down with the first attempt."""
    with _marked(ctx):
        if ctx.attempt == 1:
            if how == "exit":
                os._exit(1)
            ctypes.string_at(0)  # a segmentation fault
    return ctx.attempt


async def eat_memory(ctx: TaskContext) -> int:
    """Take more and more memory with the first attempt, until it is refused or the worker is killed for it."""
    eaten = []
    with _marked(ctx):
        while ctx.attempt == 1:
            eaten.append(b"x" * (16 * MEBIBYTE))  # not zeros: pages that are never written take no room
            await asyncio.sleep(0.005)
    return ctx.attempt


async def retry_later(ctx: TaskContext, after_s: float) -> int:
    """Ask for another attempt, once."""
    with _marked(ctx):
        if ctx.attempt == 1:
            raise Retry("not yet", after_s=after_s)
    return ctx.attempt


async def outlive_timeout(ctx: TaskContext) -> int:
    """Run past the timeout with the first attempt."""
    with _marked(ctx):
        if ctx.attempt == 1:
            await asyncio.sleep(3600)
    return ctx.attempt


async def wall_clock(ctx: TaskContext) -> dict[str, float]:
    """What this worker takes for the time; slowly, so that a batch is shared by all workers."""
    with _marked(ctx):
        await asyncio.sleep(0.2)
    return {"attempt": ctx.attempt, "time_s": time.time()}


async def poison(ctx: TaskContext) -> None:
    """Take the worker down every time."""
    with _marked(ctx):
        os._exit(139)


app = make_app()
