"""Where an app's tasks go: to Redis, or, in a user's tests, nowhere further than this process."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Protocol

from headrace.model.config import QueueConfig
from headrace.model.errors import BackendUnavailable, TaskNotFound, UnknownQueue
from headrace.model.task import NewTask, TaskRecord
from headrace.queue.connection import Connection
from headrace.queue.inbox import Inbox
from headrace.queue.inspection import Inspector
from headrace.queue.keys import queue_names_key
from headrace.queue.queue import EnqueueResult, Queue
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import PATIENCE_S, Transport


class Backend(Protocol):
    """What `Headrace` needs from where its tasks go."""

    async def enqueue(self, queue: str, tasks: Sequence[NewTask]) -> list[EnqueueResult]: ...
    async def task(self, queue: str, task_id: str) -> TaskRecord: ...
    async def finished(self, queue: str, task_id: str, timeout_s: float | None) -> TaskRecord: ...
    async def cancel(self, queue: str, task_ids: Sequence[str]) -> list[str]: ...
    async def position(self, queue: str, task_id: str) -> int: ...
    async def aclose(self) -> None: ...


class RedisBackend:
    """One event loop's connection to Redis. Opened, and the declared queues published, on first use."""

    def __init__(self, settings: RedisSettings, tenant: str, declared: Sequence[QueueConfig]) -> None:
        self.tenant = tenant
        self.connection = Connection(settings)
        self.transport = Transport(self.connection)
        self._inbox = Inbox(self.connection)
        self._declared = {config.name: config for config in declared}
        self._queues: dict[str, Queue] = {}
        self._opening = asyncio.Lock()

    async def queue(self, name: str) -> Queue:
        """The queue, on an open connection."""
        queue = self._queues.get(name)
        if queue is not None:
            return queue
        queue = Queue(self.transport, self.tenant, name)
        async with self._opening:
            await self._open()
            if name in self._declared and name not in self._queues:
                await queue.define(self._declared[name])
            self._queues[name] = queue
        return queue

    def forget(self, name: str) -> bool:
        """Publish a declared queue anew with its next use; False when this app does not declare it.

        A failover can lose a queue's definition with everything else of the last moments.
        """
        return name in self._declared and self._queues.pop(name, None) is not None

    async def config(self, name: str) -> QueueConfig:
        """The configuration in force."""
        try:
            return await (await self.queue(name)).config()
        except UnknownQueue:
            if not self.forget(name):
                raise
        return await (await self.queue(name)).config()

    async def _open(self) -> None:
        """Open the connection, with the patience that every later call has too."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self.connection.open()
            except BackendUnavailable:
                if time.monotonic() >= deadline_s:
                    raise
            await asyncio.sleep(random.uniform(0, 0.5))

    async def inspector(self, name: str) -> Inspector:
        """The readable side of the queue, on an open connection."""
        return Inspector(self.transport, await self.queue(name))

    async def queue_names(self) -> list[str]:
        """The tenant's queues, those declared by this app included."""
        await self._open()
        for name in self._declared:
            await self.queue(name)
        names = await self.transport.execute("SMEMBERS", queue_names_key(self.tenant))
        return sorted(name.decode() for name in names)

    async def enqueue(self, queue: str, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        try:
            return await (await self.queue(queue)).enqueue(tasks)
        except UnknownQueue:
            if not self.forget(queue):
                raise
        return await (await self.queue(queue)).enqueue(tasks)

    async def task(self, queue: str, task_id: str) -> TaskRecord:
        return await (await self.inspector(queue)).task(task_id)

    async def finished(self, queue: str, task_id: str, timeout_s: float | None) -> TaskRecord:
        return await self._inbox.finished(await self.inspector(queue), task_id, timeout_s)

    async def cancel(self, queue: str, task_ids: Sequence[str]) -> list[str]:
        return await (await self.queue(queue)).cancel(task_ids)

    async def position(self, queue: str, task_id: str) -> int:
        return await (await self.inspector(queue)).position(task_id)

    async def find(self, task_id: str) -> TaskRecord:
        """Look for a task in all of the tenant's queues."""
        for name in await self.queue_names():
            try:
                return await self.task(name, task_id)
            except TaskNotFound:
                continue
        raise TaskNotFound(task_id)

    async def aclose(self) -> None:
        await self._inbox.aclose()
        await self.connection.aclose()
