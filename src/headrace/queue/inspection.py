"""Looking at a queue without changing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.model.errors import TaskNotFound
from headrace.model.figures import Pulse, QueueStats, WorkerRecord
from headrace.model.ids import is_task_id
from headrace.model.task import TaskRecord

from . import wire
from .queue import Queue
from .scripts import script
from .transport import ScriptCall, Transport


class Inspector:
    """The readable side of a `Queue`."""

    def __init__(self, transport: Transport, queue: Queue) -> None:
        self._transport = transport
        self._queue = queue

    async def task(self, task_id: str, *, inbox: str = "") -> TaskRecord:
        """The task's record; with ``inbox``, that channel is told when an unfinished task ends."""
        if not is_task_id(task_id):
            raise TaskNotFound(task_id)
        reply = await self._read("watch", {"id": task_id, "inbox": inbox})
        if reply[0] == "not_found":
            raise TaskNotFound(task_id)
        return wire.task_record(task_id, self._queue.name, await self._queue.config(), reply[1])

    async def stats(self) -> QueueStats:
        """Depth, age, workers, throughput and counters."""
        return wire.queue_stats(await self._read("stats", {}))

    async def pulse(self, *, soon_s: float = 0.0) -> Pulse:
        """What an operator looks at every second. ``soon_s`` is for `Pulse.due_soon`."""
        return wire.pulse(await self._read("pulse", {"soon_us": wire.to_us(soon_s)}))

    async def position(self, task_id: str) -> int:
        """1 for the task that goes next; 0 for a task that is not waiting."""
        reply = await self._read("position", {"id": task_id})
        if reply[0] == "not_found":
            raise TaskNotFound(task_id)
        return int(reply[1])

    async def dead_letters(self, *, offset: int = 0, limit: int = 100) -> list[TaskRecord]:
        """Dead letters, oldest first."""
        ids: Sequence[bytes] = await self._transport.execute(
            "ZRANGE", self._queue.keys.dead, offset, offset + limit - 1
        )
        records = []
        for task_id in ids:
            try:
                records.append(await self.task(task_id.decode()))
            except TaskNotFound:
                continue  # purged or deleted between the two reads
        return records

    async def workers(self) -> list[WorkerRecord]:
        """Every worker known, the dead ones included until their records are purged."""
        keys = self._queue.keys
        ids: list[bytes] = []
        for key in (keys.workers, keys.dead_workers):
            ids += await self._transport.execute("ZRANGE", key, 0, -1)
        records = []
        for worker in (raw.decode() for raw in ids):
            values = await self._transport.execute("HMGET", keys.worker(worker), *wire.WORKER_FIELDS)
            fields = {
                name: value.decode()
                for name, value in zip(wire.WORKER_FIELDS, values, strict=True)
                if value is not None
            }
            if fields:
                records.append(wire.worker_record(worker, fields))
        return records

    async def _read(self, name: str, request: object) -> list[Any]:
        call = ScriptCall(script(name), self._queue.keys.fixed, (wire.pack(request),))
        (reply,) = await self._transport.run(call)
        return self._queue.opened(reply)
