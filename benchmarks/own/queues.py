"""Queues at hand in this process, and the few words that the measures need."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from benchmarks.peers.programs import PAYLOAD
from benchmarks.redis_server import Server
from headrace import Headrace, QueueConfig
from headrace.model.outcomes import Outcome, Settlement
from headrace.model.task import ClaimedTask, NewTask
from headrace.observability.tracing import EnqueueSpans
from headrace.queue.queue import MAX_NEW_TASKS_PER_CALL, MAX_TASKS_PER_CALL, Queue
from headrace.queue.transport import Transport

WORKER = "bench"
CAPACITY = 256
"""The concurrency at which Headrace runs beside the others."""
BATCH = min(CAPACITY // 2, MAX_TASKS_PER_CALL)
"""What a worker of that concurrency claims and settles at once: it keeps two round trips under way."""
FILLING = 2
"""Calls under way while a queue is filled: Redis works on one while the next is made."""


class Bench:
    """One connection, and any number of tenants and queues on it."""

    def __init__(self, server: Server, transport: Transport, call: Any) -> None:
        self.server = server
        self.transport = transport
        self._call = call
        self._numbers = itertools.count(1)

    async def queue(self, tenant: str, name: str, **settings: Any) -> Queue:
        """A queue with a worker registered; configured as beside the others, but for ``settings``."""
        queue = Queue(self.transport, tenant, name)
        await queue.define(QueueConfig(name, **{"result_retention_s": 0, **settings}))
        await self.register(queue)
        return queue

    async def register(self, queue: Queue) -> None:
        """Make the worker known, as its first heartbeat does."""
        await queue.heartbeat(WORKER, capacity=CAPACITY)

    def new_tasks(self, count: int) -> list[NewTask]:
        """Tasks with the payload that all queues get."""
        with EnqueueSpans() as spans:
            return [self._call().to_new_task(spans) for _ in range(count)]

    async def fill(self, queues: Sequence[Queue], count: int) -> None:
        """Enqueue ``count`` tasks into each queue."""
        pending = (
            (queue, min(MAX_NEW_TASKS_PER_CALL, count - start))
            for queue in queues
            for start in range(0, count, MAX_NEW_TASKS_PER_CALL)
        )

        async def fill_some() -> None:
            for queue, size in pending:
                await queue.enqueue(self.new_tasks(size))

        await asyncio.gather(*(fill_some() for _ in range(FILLING)))

    async def claim(self, queue: Queue, want: int) -> list[ClaimedTask]:
        """Claim, and insist on getting as many as there should be."""
        reply = await queue.claim(WORKER, want, number=next(self._numbers), selection="strict")
        return complete(reply.tasks, want)

    async def claim_many(self, queue: Queue, want: int) -> list[ClaimedTask]:
        """Claim any number, in batches."""
        held: list[ClaimedTask] = []
        while len(held) < want:
            held += await self.claim(queue, min(BATCH, want - len(held)))
        return held

    async def enqueue_delayed(self, queue: Queue, count: int, delay_s: float) -> None:
        """Enqueue tasks that are due later."""
        for start in range(0, count, MAX_TASKS_PER_CALL):
            tasks = self.new_tasks(min(MAX_TASKS_PER_CALL, count - start))
            await queue.enqueue([msgspec.structs.replace(task, delay_s=delay_s) for task in tasks])

    async def settle_and_claim(self, queue: Queue, held: Sequence[ClaimedTask]) -> list[ClaimedTask]:
        """Settle what is held and claim as many anew, as a busy worker does."""
        _, reply = await queue.settle_and_claim(
            completed(held), WORKER, len(held), number=next(self._numbers), selection="strict"
        )
        return complete(reply.tasks, len(held))


def complete(tasks: list[ClaimedTask], want: int) -> list[ClaimedTask]:
    """The tasks of a claim that must have got all it asked for: otherwise something else was measured."""
    if len(tasks) != want:
        raise RuntimeError(f"a claim got {len(tasks)} tasks of {want}")
    return tasks


def completed(held: Sequence[ClaimedTask]) -> list[Settlement]:
    """Their settlements, all of them done."""
    return [Settlement(task.task_id, task.token, Outcome.COMPLETED, "null") for task in held]


@asynccontextmanager
async def bench(server: Server) -> AsyncIterator[Bench]:
    """Open the connection on an emptied server, and close it."""
    server.client.flushall()
    app = Headrace(server.url, tenant="bench", queues=[QueueConfig("bench")])

    @app.task(queue="bench")
    async def noop(payload: str) -> None:
        """Never run: only its calls are enqueued."""

    async with app:
        backend = app.redis_backend()
        await backend.queue("bench")
        yield Bench(server, backend.transport, lambda: noop.call(PAYLOAD))
