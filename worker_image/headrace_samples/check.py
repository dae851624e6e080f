"""One task from end to end, as ``helm test`` runs it: ``python -m headrace_samples.check --queue NAME``.

It enqueues ``nothing``, waits for a worker to run it, and says what it saw. When the time is up it says how far things
came, and where to look next. ``HEADRACE_REDIS_URL`` and ``HEADRACE_TENANT`` say where the queue is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from headrace import (
    BackendError,
    Headrace,
    HeadraceError,
    ResultTimeout,
    TaskFailed,
    TaskHandle,
    TaskState,
    UnknownQueue,
)

_ARGUMENT = 7
_POLL_S = 0.5


class CheckFailed(Exception):
    """What went wrong, for people."""


async def check(app: Headrace, queue: str, timeout_s: float) -> str:
    """Run one task and tell how it went; `CheckFailed` says why it did not."""
    began_s = time.monotonic()
    deadline_s = began_s + timeout_s
    handle = await _enqueued(app, queue, deadline_s, timeout_s)
    print(f"The task {handle.id} is in the queue {queue} of the tenant {app.tenant}.", flush=True)
    try:
        result = await handle.result(timeout_s=max(deadline_s - time.monotonic(), _POLL_S))
    except ResultTimeout:
        raise CheckFailed(await _how_far(app, handle, timeout_s)) from None
    except TaskFailed as error:
        raise CheckFailed(f"The task {handle.id} was run and failed: {error}") from None
    if result != _ARGUMENT:
        raise CheckFailed(f"The task {handle.id} was enqueued with {_ARGUMENT}, and its result is {result!r}.")
    record = await handle.record()
    took_s = time.monotonic() - began_s
    return f"The worker {record.worker} has run it: {_ARGUMENT} went in, {result} came out, after {took_s:.1f} s."


async def _enqueued(app: Headrace, queue: str, deadline_s: float, timeout_s: float) -> TaskHandle[int]:
    """The task, as soon as Redis answers and the operator has published the queue."""
    nothing = app.remote("nothing", queue=queue)
    while True:
        try:
            return await nothing.enqueue(_ARGUMENT)
        except (BackendError, UnknownQueue) as error:
            if time.monotonic() > deadline_s:
                raise CheckFailed(_no_queue(error, queue, app.tenant, timeout_s)) from None
        await asyncio.sleep(_POLL_S)


def _no_queue(error: HeadraceError, queue: str, namespace: str, timeout_s: float) -> str:
    if isinstance(error, UnknownQueue):
        return (
            f"The operator did not publish the queue {queue} within {timeout_s:g} s: is it running, and does it look "
            f"after the namespace {namespace}? `kubectl --namespace {namespace} describe taskqueue {queue}` tells what "
            "it says."
        )
    return f"Redis could not be used within {timeout_s:g} s: {error}"


async def _how_far(app: Headrace, handle: TaskHandle[int], timeout_s: float) -> str:
    try:
        record = await handle.record()
        stats = await app.stats(handle.queue)
    except HeadraceError as error:
        return f"The task {handle.id} had no result within {timeout_s:g} s, and then Redis did not answer: {error}"
    pool = f"`kubectl --namespace {app.tenant} describe workerpool {handle.queue}` tells why."
    if record.state is TaskState.QUEUED and stats.workers.active == 0:
        return f"No worker came for the task {handle.id} within {timeout_s:g} s: {pool}"
    return (
        f"The task {handle.id} had no result within {timeout_s:g} s: it is {record.state.value}, and the queue has "
        f"{stats.workers.active} workers. {pool}"
    )


async def _run(queue: str, timeout_s: float) -> str:
    async with Headrace() as app:
        return await check(app, queue, timeout_s)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headrace_samples.check",
        description="Run one task of the samples from end to end.",
        allow_abbrev=False,
    )
    parser.add_argument("--queue", required=True, metavar="NAME", help="the queue, whose workers run the samples")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="default: %(default)g")
    given = parser.parse_args(arguments)
    try:
        print(asyncio.run(_run(given.queue, given.timeout)))
    except (CheckFailed, HeadraceError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
