"""Handlers that run in processes; they must be importable by name, so they live in a module of their own."""

from __future__ import annotations

import os
import time
from typing import Any

from headrace import Fail, Headrace, QueueConfig, TaskContext

app = Headrace("redis://localhost:6379/0", tenant="unused", queues=[QueueConfig("jobs")])


@app.task(queue="jobs", run_in="process")
def square(number: int) -> dict[str, int]:
    print("a handler may print")
    return {"result": number * number, "pid": os.getpid()}


@app.task(queue="jobs", run_in="process")
def echo(text: str) -> str:
    return text


@app.task(queue="jobs", run_in="process")
def crash() -> None:
    os._exit(3)


@app.task(queue="jobs", run_in="process", retry_on=(OSError,))
def raise_value_error() -> None:
    raise ValueError("bad value")


@app.task(queue="jobs", run_in="process")
def say_fail() -> None:
    raise Fail("no use")


@app.task(queue="jobs", run_in="process")
def endless() -> None:
    while True:
        pass


@app.task(queue="jobs", run_in="process")
def report_and_wait(ctx: TaskContext) -> None:
    ctx.progress("waiting")
    time.sleep(600)


def register(other: Headrace) -> None:
    """Give another app the same handlers."""
    definitions: dict[str, Any] = app.tasks
    other.tasks.update(definitions)
