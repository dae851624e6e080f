"""The verbs of a queue. Each is one script, and takes a batch where a batch makes sense.

A task's way: `enqueue` → `claim` → (handler) → `settle`, with `heartbeat` in between. The rest keeps the
queue healthy or steers it. Every verb may be sent twice without harm: enqueue is recognised by the task
ids, claim by its number, settle by its fencing token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, NotRequired, Required, TypedDict, TypeVar, Unpack

import msgspec

from headrace.model.config import QueueConfig, Selection, stored_config
from headrace.model.errors import ConfigConflict, Deposed, InvalidInput, QueueHeld, UnknownQueue
from headrace.model.names import check_name
from headrace.model.outcomes import Settlement, SettleStatus
from headrace.model.payload import payload_too_large, size_of
from headrace.model.task import NewTask
from headrace.model.task_rules import (
    delay_too_long,
    field_of,
    too_many_capability_sets,
    unknown_level,
)

from . import wire
from .keys import NEEDED_BY_ENQUEUE, QueueKeys, queue_names_key
from .scripts import script
from .transport import ScriptCall, Transport

MAX_TASKS_PER_CALL = 64
"""The bound of one script: nobody else is served while it runs, so it should be over within two milliseconds."""
MAX_NEW_TASKS_PER_CALL = 128
MAX_BYTES_PER_CALL = 1 << 20
"""The same for an enqueue, which takes less for each task."""
MAX_RETURNS_PER_CALL = 32
"""The same for tasks that are taken back from a worker or from the dead letters, which takes the longest."""
KEYS_LOOKED_AT_PER_CALL = 1000
"""The same for a search through all keys of the server."""
CALLS_PER_ROUND_TRIP = 8
"""Scripts of a bulk enqueue that are sent together; Redis may serve others in between."""


T = TypeVar("T")

RunTimes = Sequence[str | int]
"""A level, how many of its handlers have ended, and how many microseconds they took in all; then the next three."""


class EnqueueResult(msgspec.Struct, frozen=True):
    """``duplicate``: the idempotency key was known, and this is the task it led to."""

    task_id: str
    duplicate: bool = False


class ClaimOptions(TypedDict):
    """How a claim is made."""

    number: Required[int]
    """Must rise with each new claim of a worker's lane."""
    lane: NotRequired[int]
    repair_limit: NotRequired[int]
    """How many due tasks and ended leases to see to first; 20 if not given."""
    selection: NotRequired[Selection]
    """What the caller knows of the queue. Strict selection needs no random numbers; if not given, some are sent."""


class HeartbeatReply(msgspec.Struct, frozen=True):
    """What a worker learns with each heartbeat."""

    draining: bool
    lost: list[str]
    cancelled: list[str]


class Queue:
    """One tenant's queue. Cheap to make; holds no connection of its own."""

    def __init__(self, transport: Transport, tenant: str, name: str, *, epoch: int | None = None) -> None:
        """``epoch``: the term of the leader that acts through this object; `Deposed` once there is a later one."""
        self.keys = QueueKeys(tenant, name)
        self._epoch = epoch
        self.tenant = tenant
        self.name = name
        self._transport = transport

    # ── configuration ────────────────────────────────────────────────────────────────────────────────

    async def define(
        self,
        config: QueueConfig,
        *,
        owner: Literal["app", "operator"] = "app",
        generation: int = 0,
        holder: str = "",
    ) -> QueueConfig:
        """Publish ``config``; returns the configuration in force, which an operator may have the say over.

        ``holder`` names the object that an operator publishes for, as PLACE/UID; `QueueHeld` if there is another.
        """
        reply = await self._run(
            "configure",
            {
                "config": wire.script_config(config),
                "json": msgspec.json.encode(config).decode(),
                "owner": owner,
                "generation": generation,
                "format": wire.CONFIG_FORMAT,
                "holder": holder,
            },
        )
        if reply[0] == "held":
            raise QueueHeld(self.name, reply[1])
        if reply[0] == "level_in_use":
            raise ConfigConflict(
                f"levels: {reply[1]!r} cannot go while {reply[2]} tasks wait in it; let them drain or keep the level"
            )
        # Asked first: out of memory Redis refuses even to add what is there already.
        if not await self._transport.execute("SISMEMBER", queue_names_key(self.tenant), self.name):
            await self._transport.execute("SADD", queue_names_key(self.tenant), self.name)
        _, text, owner_in_force, generation_in_force, is_current_format = reply
        in_force = stored_config(text)
        if not is_current_format:
            # An older program has the say here; what it said is put into the form that our scripts read.
            return await self.define(in_force, owner=owner_in_force, generation=generation_in_force, holder=holder)
        return in_force

    async def release(self, holder: str) -> None:
        """Let go of a queue that was published for ``holder``; its tasks and its configuration stay."""
        reply = await self._run("release", {"holder": holder})
        if reply[0] == "held":
            raise QueueHeld(self.name, reply[1])

    async def wipe(self, holder: str = "") -> int:
        """Delete the queue with all its tasks; returns how many keys there were.

        With ``holder`` only if it was published for that one; `QueueHeld` otherwise.
        """
        cursor, deleted = "0", 0
        while True:
            request = {"cursor": cursor, "count": KEYS_LOOKED_AT_PER_CALL, "holder": holder}
            status, *found = await self._run("wipe", request)
            if status == "held":
                raise QueueHeld(self.name, found[0])
            cursor = found[0]
            deleted += int(found[1])
            if cursor == "0":
                await self._transport.execute("SREM", queue_names_key(self.tenant), self.name)
                return deleted

    async def config(self) -> QueueConfig:
        """The configuration in force."""
        text = await self._transport.execute("HGET", self.keys.config, "json")
        if text is None:
            raise self._unknown()
        return stored_config(text)

    # ── a task's way ─────────────────────────────────────────────────────────────────────────────────

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store ``tasks``: all of them, or none when one is not acceptable."""
        if not tasks:
            return []
        chunks = _chunks_of_new(tasks)
        whole = wire.enqueue_summary(tasks) if len(chunks) > 1 else None
        results: list[EnqueueResult] = []
        for flight in _chunks(chunks, CALLS_PER_ROUND_TRIP):
            calls = [self._call("enqueue", wire.enqueue_request(chunk, whole)) for chunk in flight]
            for chunk, packed in zip(flight, await self._transport.run(*calls), strict=True):
                reply = self.opened(packed)
                if reply[0] != "ok":
                    raise await self._refusal(reply, tasks)
                stored = [EnqueueResult(task.task_id) for task in chunk]
                for index, known in reply[2]:
                    stored[index] = EnqueueResult(known, duplicate=True)
                results += stored
        return results

    async def claim(self, worker: str, want: int, **options: Unpack[ClaimOptions]) -> wire.ClaimReply:
        """Lease up to ``want`` tasks to ``worker``."""
        (reply,) = await self._transport.run(self.claim_call(worker, want, **options))
        return self.claimed(reply)

    def claim_call(self, worker: str, want: int, **options: Unpack[ClaimOptions]) -> ScriptCall:
        """A claim that somebody else sends; `claimed` reads its answer."""
        request = {
            "worker": worker,
            "want": want,
            "number": options["number"],
            "lane": options.get("lane", 0),
            "repair_limit": options.get("repair_limit", 20),
        }
        # Drawn here, because the script's own generator repeats itself.
        if options.get("selection", "weighted") == "weighted":
            request["randoms"] = [random.random() for _ in range(want)]
        request["random"] = random.random()
        return self._call("claim", request)

    def claimed(self, answer: bytes) -> wire.ClaimReply:
        """The answer to a claim."""
        claimed = wire.claim_reply(answer)
        if claimed.status == "unknown_queue":
            raise self._unknown()
        return claimed

    async def settle(self, settlements: Sequence[Settlement], ran: RunTimes = ()) -> list[SettleStatus]:
        """End leases. The answer says for each whether it was still held."""
        (reply,) = await self._transport.run(self._settle_call(settlements, ran))
        return wire.settle_statuses(self.opened(reply), len(settlements))

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        worker: str,
        want: int,
        ran: RunTimes = (),
        **options: Unpack[ClaimOptions],
    ) -> tuple[list[SettleStatus], wire.ClaimReply]:
        """Both in one round trip: what a busy worker does all day."""
        settled, claimed = await self._transport.run(
            self._settle_call(settlements, ran), self.claim_call(worker, want, **options)
        )
        return wire.settle_statuses(self.opened(settled), len(settlements)), self.claimed(claimed)

    async def heartbeat(
        self,
        worker: str,
        *,
        status: Literal["active", "draining", "stopped"] = "active",
        capacity: int = 1,
        capabilities: str = "",
        version: str = "",
        host: str = "",
        held: Sequence[tuple[str, int]] = (),
        progress: Sequence[tuple[str, int, str]] = (),
    ) -> HeartbeatReply:
        """Register or stay registered, and renew the leases in ``held`` (task id and token)."""
        check_name("worker", worker)
        info = ["capacity", capacity, "caps", capabilities, "version", version, "host", host]
        request = {"worker": worker, "status": status, "info": info}
        draining, lost, cancelled = False, [], []
        for some_held in _chunks(held, MAX_TASKS_PER_CALL) or [()]:
            reply = await self._run("heartbeat", {**request, "held": some_held, "progress": progress})
            draining, progress = reply[2], ()
            lost += reply[3]
            cancelled += reply[4]
        return HeartbeatReply(draining=draining, lost=lost, cancelled=cancelled)

    # ── repair ───────────────────────────────────────────────────────────────────────────────────────

    async def forward(self, limit: int = MAX_TASKS_PER_CALL) -> int:
        """Make due delayed tasks ready; returns how many."""
        return int((await self._run("forward", {"limit": limit}))[1])

    async def reclaim(self, limit: int = MAX_RETURNS_PER_CALL) -> tuple[int, list[str]]:
        """Take back expired leases; returns how many, and the workers found dead."""
        reply = await self._run("reclaim", {"limit": limit, "random": random.random()})
        return reply[1], reply[2]

    async def promote(self, *, force: bool = False) -> dict[tuple[str, str], int]:
        """Lift tasks that waited too long; returns how many by (from, to). Does nothing before it is time."""
        reply = await self._run("promote", {"force": force})
        return {(source, target): moved for source, target, moved in reply[1]}

    async def purge(self, limit: int = MAX_TASKS_PER_CALL) -> tuple[int, int, int]:
        """Delete what outlived its retention; returns finished tasks, dead letters, worker records."""
        _, finished, dead, workers = await self._run("purge", {"limit": limit})
        return finished, dead, workers

    async def audit(self, cursor: str = "0", *, count: int = 500) -> tuple[str, int]:
        """Look through about ``count`` keys for tasks that execute without a lease.

        Returns where to go on ("0": it was the last part) and how many were found; the next `reclaim` deals with them.
        """
        _, cursor, orphans = await self._run("audit", {"cursor": cursor, "count": count})
        return cursor, orphans

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, task_ids: Sequence[str]) -> list[str]:
        """Cancel tasks; the answers are cancelled, cancelling, not_found, or the state that came first."""
        answers: list[str] = []
        for some_ids in _chunks(task_ids, MAX_TASKS_PER_CALL):
            answers += (await self._run("cancel", {"ids": some_ids}))[1]
        return answers

    async def replay(
        self, task_ids: Sequence[str] = (), *, limit: int = 100
    ) -> tuple[list[str], list[tuple[str, str]]]:
        """Requeue dead letters: those named, or the oldest. Returns those replayed, and (id, state) of the others."""
        replayed: list[str] = []
        refused: list[tuple[str, str]] = []
        for some_ids in _chunks(task_ids, MAX_RETURNS_PER_CALL):
            _, done, not_dead = await self._run("replay", {"ids": some_ids, "limit": 0})
            replayed += done
            refused += [(task_id, state) for task_id, state in not_dead]
        while not task_ids and len(replayed) < limit:
            batch = min(limit - len(replayed), MAX_RETURNS_PER_CALL)
            done = (await self._run("replay", {"ids": [], "limit": batch}))[1]
            replayed += done
            if len(done) < batch:
                break
        return replayed, refused

    async def drain(
        self,
        workers: Sequence[str],
        *,
        idle_s: float = 0.0,
        idle_since_s: Sequence[float] | None = None,
        force: bool = False,
    ) -> list[str]:
        """Stop workers from claiming if they are idle (or in any case); answers draining, busy, …

        With ``idle_since_s`` each of them only if it has been idle since that moment, as its record tells it.
        """
        answers: list[str] = []
        for first in range(0, len(workers), MAX_TASKS_PER_CALL):
            some = slice(first, first + MAX_TASKS_PER_CALL)
            request = {"workers": workers[some], "action": "drain", "idle_us": wire.to_us(idle_s), "force": force}
            if idle_since_s is not None:
                request["idle_since_us"] = [wire.to_us(since_s) for since_s in idle_since_s[some]]
            answers += (await self._run("drain", request))[1]
        return answers

    async def undrain(self, workers: Sequence[str]) -> list[str]:
        """Let workers claim again."""
        answers: list[str] = []
        for some_workers in _chunks(workers, MAX_TASKS_PER_CALL):
            request = {"workers": some_workers, "action": "undrain", "idle_us": 0, "force": False}
            answers += (await self._run("drain", request))[1]
        return answers

    async def hold_newcomers(self, deployment: str, hold_s: float) -> None:
        """Have workers of this Deployment that register from now on drain from the beginning; 0 lets them in again."""
        request = {"workers": [], "action": "drain", "idle_us": 0, "force": False}
        await self._run("drain", {**request, "deployment": deployment, "hold_us": wire.to_us(hold_s)})

    async def hang_bell(self, room: int | None, waiting: int) -> bool:
        """Have `bell_channel` told when more than ``room`` tasks have come to wait since there were ``waiting``.

        None: no more. Returns False when there have been so many already; then nobody is told.
        """
        return bool((await self._run("bell", {"room": -1 if room is None else room, "waiting": waiting}))[1])

    async def pause(self) -> None:
        """Hand out nothing until `resume`. Tasks that run go on; enqueue works."""
        await self._run("pause", {"paused": True})

    async def resume(self) -> None:
        """Hand out tasks again."""
        await self._run("pause", {"paused": False})

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _call(self, name: str, request: Any) -> ScriptCall:
        return script_call(self.keys, name, request)

    def _settle_call(self, settlements: Sequence[Settlement], ran: RunTimes) -> ScriptCall:
        return self._call("settle", {"random": random.random(), "rows": settlements, "ran": ran})

    async def _run(self, name: str, request: dict[str, Any]) -> list[Any]:
        if self._epoch is not None:
            request = {**request, "epoch": self._epoch}
        (reply,) = await self._transport.run(self._call(name, request))
        return self.opened(reply)

    def opened(self, reply: bytes) -> list[Any]:
        """A script's answer; `UnknownQueue` when the queue does not exist."""
        answer: list[Any] = wire.unpack(reply)
        if answer[0] == "unknown_queue":
            raise self._unknown()
        if answer[0] == "deposed":
            raise Deposed(f"queue {self.name!r}: a newer leader has taken over")
        return answer

    def _unknown(self) -> UnknownQueue:
        return UnknownQueue(
            "queue",
            f"{self.name!r} is not defined for tenant {self.tenant!r}; "
            f"declare it with Headrace(..., queues=[QueueConfig({self.name!r})])",
        )

    async def _refusal(self, reply: list[Any], tasks: Sequence[NewTask]) -> InvalidInput:
        """The error for a batch that was refused; it names the first task that is to blame."""
        problem, detail = reply
        if problem == "unknown_level":
            index = _first(tasks, lambda task: task.level == detail)
            return unknown_level(field_of("priority", index, len(tasks)), await self.config(), detail)
        if problem == "too_late":
            index = _first(tasks, lambda task: wire.to_us(task.delay_s) > detail)
            return delay_too_long(field_of("delay_s", index, len(tasks)), wire.to_s(detail))
        if problem == "too_many_capability_sets":
            index = _first(tasks, lambda task: task.capabilities == detail)
            return too_many_capability_sets(index, len(tasks))
        index = _first(tasks, lambda task: size_of(task.message) > detail)
        return payload_too_large(field_of("payload", index, len(tasks)), size_of(tasks[index].message), detail)


def script_call(keys: QueueKeys, name: str, request: Any) -> ScriptCall:
    """A call of a script for the queue with these keys."""
    declared = keys.fixed[:NEEDED_BY_ENQUEUE] if name == "enqueue" else keys.fixed
    return ScriptCall(script(name), declared, (wire.pack(request),))


def _first(tasks: Sequence[NewTask], is_meant: Callable[[NewTask], bool]) -> int:
    return next(index for index, task in enumerate(tasks) if is_meant(task))


def _chunks(values: Sequence[T], size: int) -> list[Sequence[T]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _chunks_of_new(tasks: Sequence[NewTask]) -> list[Sequence[NewTask]]:
    chunks: list[Sequence[NewTask]] = []
    start = size = 0
    for index, task in enumerate(tasks):
        length = len(task.message)
        if index > start and (index - start >= MAX_NEW_TASKS_PER_CALL or size + length > MAX_BYTES_PER_CALL):
            chunks.append(tasks[start:index])
            start, size = index, 0
        size += length
    if start < len(tasks):
        chunks.append(tasks[start:])
    return chunks
