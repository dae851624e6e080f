"""A queue at hand: one queue of one tenant on a real server, with the few words that tests need all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from headrace.model.config import QueueConfig
from headrace.model.figures import WorkerRecord
from headrace.model.ids import new_task_id
from headrace.model.outcomes import Outcome, Problem, Settlement, SettleStatus
from headrace.model.states import TaskState
from headrace.model.task import ClaimedTask, NewTask, TaskMessage, TaskRecord
from headrace.queue import wire
from headrace.queue.connection import Connection
from headrace.queue.inspection import Inspector
from headrace.queue.queue import Queue
from headrace.queue.scripts import script
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import ScriptCall, Transport
from tests.support.clock import ServerClock
from tests.support.redis_server import RedisServer
from tests.support.snapshot import snapshot
from tests.support.topology import Installation

WORKER = "worker-1"
OTHER = "worker-2"

CONFIG = QueueConfig("verbs")
"""The queue of tests that are about one verb: every setting as it comes."""


class Bench:
    """A defined queue, a clock to move, and a raw client to look underneath."""

    def __init__(self, server: Installation, transport: Transport, tenant: str, config: QueueConfig) -> None:
        self.server = server
        self.transport = transport
        self.tenant = tenant
        self.config = config
        self.queue = Queue(transport, tenant, config.name)
        self.inspector = Inspector(transport, self.queue)
        self.keys = self.queue.keys
        # The driver's types cover every protocol at once; what a test reads here it knows.
        self.raw: Any = server.client()
        self._claims = 0

    @property
    def owner(self) -> RedisServer:
        """The server that holds this queue, for what is about a server and not about keys."""
        return self.server.owner_of(self.keys.config)

    @property
    def clock(self) -> ServerClock:
        return self.server.clock

    @property
    def now_s(self) -> float:
        """The server's time; exact, because the clock stands still between steps."""
        return self.clock.now_us / 1_000_000

    # ── words of a test ──────────────────────────────────────────────────────────────────────────────

    async def put(self, level: str = "", *, count: int = 1, **fields: Any) -> list[str]:
        """Enqueue ``count`` tasks in one call; returns their ids."""
        tasks = [new_task(level, **fields) for _ in range(count)]
        return [result.task_id for result in await self.queue.enqueue(tasks)]

    async def put_one(self, level: str = "", **fields: Any) -> str:
        (task_id,) = await self.put(level, **fields)
        return task_id

    async def register(self, worker: str = WORKER, *, capacity: int = 5, capabilities: str = "") -> None:
        """A heartbeat with nothing held: what a worker does when it starts."""
        await self.queue.heartbeat(worker, capacity=capacity, capabilities=capabilities)

    async def claim(self, want: int = 1, *, worker: str = WORKER) -> list[ClaimedTask]:
        """A new claim, with the repair limit of the queue's configuration."""
        return (await self.ask(want, worker=worker)).tasks

    async def ask(self, want: int = 1, *, worker: str = WORKER) -> wire.ClaimReply:
        """The whole answer to a new claim."""
        self._claims += 1
        return await self.queue.claim(worker, want, number=self._claims, repair_limit=self.config.repair_limit)

    async def claim_one(self, *, worker: str = WORKER) -> ClaimedTask:
        (task,) = await self.claim(1, worker=worker)
        return task

    async def claim_drawing(self, randoms: Sequence[float], *, worker: str = WORKER) -> list[ClaimedTask]:
        """A claim whose draws the test decides: one number in [0, 1) per task."""
        self._claims += 1
        request = {
            "worker": worker,
            "lane": 0,
            "want": len(randoms),
            "number": self._claims,
            "randoms": randoms,
            "random": 0.0,
            "repair_limit": self.config.repair_limit,
        }
        return wire.claim_reply(await self.run_packed("claim", request)).tasks

    async def settle(
        self, task: ClaimedTask, outcome: Outcome, *, body: str = "", after_s: float | None = None
    ) -> SettleStatus:
        if not body:
            body = problem_text() if outcome in (Outcome.RETRY, Outcome.FAILED) else "null"
        (status,) = await self.queue.settle([Settlement(task.task_id, task.token, outcome, body, after_s)])
        return status

    async def complete(self, task: ClaimedTask) -> None:
        assert await self.settle(task, Outcome.COMPLETED) is SettleStatus.SETTLED

    async def fail_attempt(self, task: ClaimedTask, message: str = "it broke") -> None:
        """A failure that may be tried again."""
        assert await self.settle(task, Outcome.RETRY, body=problem_text(message)) is SettleStatus.SETTLED

    async def record(self, task_id: str) -> TaskRecord:
        return await self.inspector.task(task_id)

    async def state(self, task_id: str) -> TaskState:
        return (await self.record(task_id)).state

    async def worker(self, name: str = WORKER) -> WorkerRecord:
        return {record.worker: record for record in await self.inspector.workers()}[name]

    async def run(self, name: str, request: Any) -> list[Any]:
        """A script with a request of the test's own making."""
        answer: list[Any] = wire.unpack(await self.run_packed(name, request))
        return answer

    async def run_packed(self, name: str, request: Any) -> bytes:
        """The same, with the answer as it comes."""
        (reply,) = await self.transport.run(ScriptCall(script(name), self.keys.fixed, (wire.pack(request),)))
        assert isinstance(reply, bytes)
        return reply

    # ── underneath ───────────────────────────────────────────────────────────────────────────────────

    def key(self, name: str) -> str:
        return f"{self.keys.prefix}{name}"

    def score(self, name: str, task_id: str) -> float | None:
        """A member's score in one of the queue's sorted sets, in µs."""
        score: float | None = self.raw.zscore(self.key(name), task_id)
        return score

    def dump(self) -> dict[bytes, tuple[Any, int]]:
        """Every key of the queue with its content and its time to live."""
        found = snapshot(self.raw, f"{self.keys.prefix}*")
        return {key: (content, self.raw.pttl(key)) for key, content in found.items()}

    def events(self) -> list[tuple[str, str, str, int, str, str]]:
        """The rows of the event stream, flattened: id, kind, level, attempt, worker, detail."""
        entries = self.raw.xrange(self.key("events"))
        return [row for _, fields in entries for row in wire.event_rows(fields[b"rows"])]


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]


@asynccontextmanager
async def open_bench(server: Installation, tenant: str, config: QueueConfig, *workers: str) -> AsyncIterator[Bench]:
    """Connect, define the queue, register ``workers``; and leave without a connection open."""
    connection = Connection(RedisSettings.from_url(server.url))
    await connection.open()
    try:
        bench = Bench(server, Transport(connection), tenant, config)
        try:
            await bench.queue.define(config)
            for worker in workers:
                await bench.register(worker)
            yield bench
        finally:
            bench.raw.close()
    finally:
        await connection.aclose()


def new_task(level: str = "", **fields: Any) -> NewTask:
    message = TaskMessage("work", args=fields.pop("args", []), traceparent=fields.pop("traceparent", ""))
    values = {"task_id": new_task_id(), "message": msgspec.json.encode(message).decode()} | fields
    return NewTask(level=level, **values)


def problem_text(message: str = "it broke") -> str:
    return msgspec.json.encode(Problem("RuntimeError", message)).decode()
