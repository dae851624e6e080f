"""The verbs of a queue. Each is one script, and takes a batch where a batch makes sense.

A task's way: `enqueue` → `claim` → (handler) → `settle`, with `heartbeat` in between. The rest keeps the
queue healthy or steers it. Every verb may be sent twice without harm: enqueue is recognised by the task
ids, claim by its number, settle by its fencing token.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from headrace.model.config import QueueConfig, stored_config
from headrace.model.errors import ConfigConflict, InvalidInput, InvalidPayload, UnknownQueue
from headrace.model.names import check_name
from headrace.model.outcomes import Settlement, SettleStatus
from headrace.model.payload import DEFAULT_MAX_BYTES
from headrace.model.task import NewTask
from headrace.model.task_rules import (
    MAX_CAPABILITY_SETS,
    check_new_tasks,
    delay_too_long,
    field_of,
    too_many_capability_sets,
    unknown_level,
)

from . import wire
from .keys import QueueKeys, queue_names_key
from .scripts import script
from .transport import ScriptCall, Transport

MAX_TASKS_PER_CALL = 1000
MAX_BYTES_PER_CALL = 4 << 20
"""Bounds of one enqueue script, so that a bulk enqueue never holds Redis up for long."""


class EnqueueResult(msgspec.Struct, frozen=True):
    """``duplicate``: the idempotency key was known, and this is the task it led to."""

    task_id: str
    duplicate: bool = False


class HeartbeatReply(msgspec.Struct, frozen=True):
    """What a worker learns with each heartbeat."""

    draining: bool
    lost: list[str]
    cancelled: list[str]


class Queue:
    """One tenant's queue. Cheap to make; holds no connection of its own."""

    def __init__(self, transport: Transport, tenant: str, name: str) -> None:
        self.keys = QueueKeys(tenant, name)
        self.tenant = tenant
        self.name = name
        self._transport = transport

    # ── configuration ────────────────────────────────────────────────────────────────────────────────

    async def define(
        self, config: QueueConfig, *, owner: Literal["app", "operator"] = "app", generation: int = 0
    ) -> QueueConfig:
        """Publish ``config``; returns the configuration in force, which an operator may have the say over."""
        reply = await self._run(
            "configure",
            {
                "config": wire.script_config(config),
                "json": msgspec.json.encode(config).decode(),
                "levels": config.level_names(),
                "owner": owner,
                "generation": generation,
                "format": wire.CONFIG_FORMAT,
            },
        )
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
            return await self.define(in_force, owner=owner_in_force, generation=generation_in_force)
        return in_force

    async def config(self) -> QueueConfig:
        """The configuration in force."""
        text = await self._transport.execute("HGET", self.keys.config, "json")
        if text is None:
            raise self._unknown()
        return stored_config(text)

    # ── a task's way ─────────────────────────────────────────────────────────────────────────────────

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store ``tasks``: all of them, or none when one is not acceptable."""
        chunks = _chunked(tasks)
        if len(chunks) > 1 or any(len(task.message) > DEFAULT_MAX_BYTES for task in tasks):
            # Checked as a whole before the first call: a bad task must not leave half a batch behind.
            check_new_tasks(await self.config(), tasks)
            await self._check_capability_sets(tasks)
        results: list[EnqueueResult] = []
        for chunk in chunks:
            reply = await self._run("enqueue", {"tasks": [wire.new_task_row(task) for task in chunk]})
            if reply[0] != "ok":
                raise await self._refusal(reply, len(results), len(tasks))
            existing = dict(reply[2])
            for index, task in enumerate(chunk):
                known = existing.get(index)
                results.append(EnqueueResult(known, duplicate=True) if known else EnqueueResult(task.task_id))
        return results

    async def claim(
        self, worker: str, want: int, *, number: int, lane: int = 0, repair_limit: int = 200
    ) -> wire.ClaimReply:
        """Lease up to ``want`` tasks to ``worker``. ``number`` must rise with each new claim of a worker's lane."""
        (reply,) = await self._transport.run(self._claim_call(worker, want, number, lane, repair_limit))
        return wire.claim_reply(self.opened(reply))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleStatus]:
        """End leases. The answer says for each whether it was still held."""
        (reply,) = await self._transport.run(self._settle_call(settlements))
        return [SettleStatus(status) for status in self.opened(reply)[1]]

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        worker: str,
        want: int,
        *,
        number: int,
        lane: int = 0,
        repair_limit: int = 200,
    ) -> tuple[list[SettleStatus], wire.ClaimReply]:
        """Both in one round trip: what a busy worker does all day."""
        settled, claimed = await self._transport.run(
            self._settle_call(settlements), self._claim_call(worker, want, number, lane, repair_limit)
        )
        statuses = [SettleStatus(status) for status in self.opened(settled)[1]]
        return statuses, wire.claim_reply(self.opened(claimed))

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
        reply = await self._run(
            "heartbeat", {"worker": worker, "status": status, "info": info, "held": held, "progress": progress}
        )
        return HeartbeatReply(draining=reply[2], lost=reply[3], cancelled=reply[4])

    # ── repair ───────────────────────────────────────────────────────────────────────────────────────

    async def forward(self, limit: int = 1000) -> int:
        """Make due delayed tasks ready; returns how many."""
        return int((await self._run("forward", {"limit": limit}))[1])

    async def reclaim(self, limit: int = 1000) -> tuple[int, list[str]]:
        """Take back expired leases; returns how many, and the workers found dead."""
        reply = await self._run("reclaim", {"limit": limit, "random": random.random()})
        return reply[1], reply[2]

    async def promote(self, *, force: bool = False) -> dict[tuple[str, str], int]:
        """Lift tasks that waited too long; returns how many by (from, to). Does nothing before it is time."""
        reply = await self._run("promote", {"force": force})
        return {(source, target): moved for source, target, moved in reply[1]}

    async def purge(self, limit: int = 1000) -> tuple[int, int, int]:
        """Delete what outlived its retention; returns finished tasks, dead letters, worker records."""
        _, finished, dead, workers = await self._run("purge", {"limit": limit})
        return finished, dead, workers

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, task_ids: Sequence[str]) -> list[str]:
        """Cancel tasks; the answers are cancelled, cancelling, not_found, or the state that came first."""
        return list((await self._run("cancel", {"ids": task_ids}))[1])

    async def replay(
        self, task_ids: Sequence[str] = (), *, limit: int = 100
    ) -> tuple[list[str], list[tuple[str, str]]]:
        """Requeue dead letters: those named, or the oldest. Returns those replayed, and (id, state) of the others."""
        _, replayed, refused = await self._run("replay", {"ids": task_ids, "limit": limit})
        return replayed, [(task_id, state) for task_id, state in refused]

    async def drain(self, workers: Sequence[str], *, idle_s: float = 0.0, force: bool = False) -> list[str]:
        """Stop workers from claiming if they are idle (or in any case); answers draining, busy, …"""
        request = {"workers": workers, "action": "drain", "idle_us": wire.to_us(idle_s), "force": force}
        return list((await self._run("drain", request))[1])

    async def undrain(self, workers: Sequence[str]) -> list[str]:
        """Let workers claim again."""
        request = {"workers": workers, "action": "undrain", "idle_us": 0, "force": False}
        return list((await self._run("drain", request))[1])

    async def pause(self) -> None:
        """Hand out nothing until `resume`. Tasks that run go on; enqueue works."""
        await self._run("pause", {"paused": True})

    async def resume(self) -> None:
        """Hand out tasks again."""
        await self._run("pause", {"paused": False})

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _call(self, name: str, request: Any) -> ScriptCall:
        return ScriptCall(script(name), self.keys.fixed, (wire.pack(request),))

    def _settle_call(self, settlements: Sequence[Settlement]) -> ScriptCall:
        rows = [wire.settlement_row(settlement) for settlement in settlements]
        return self._call("settle", {"random": random.random(), "rows": rows})

    def _claim_call(self, worker: str, want: int, number: int, lane: int, repair_limit: int) -> ScriptCall:
        # One random number per task for weighted selection: the script's own generator repeats itself.
        request = {
            "worker": worker,
            "lane": lane,
            "want": want,
            "number": number,
            "randoms": [random.random() for _ in range(want)],
            "random": random.random(),
            "repair_limit": repair_limit,
        }
        return self._call("claim", request)

    async def _run(self, name: str, request: Any) -> list[Any]:
        (reply,) = await self._transport.run(self._call(name, request))
        return self.opened(reply)

    def opened(self, reply: bytes) -> list[Any]:
        """A script's answer; `UnknownQueue` when the queue does not exist."""
        answer: list[Any] = wire.unpack(reply)
        if answer[0] == "unknown_queue":
            raise self._unknown()
        return answer

    def _unknown(self) -> UnknownQueue:
        return UnknownQueue(
            "queue",
            f"{self.name!r} is not defined for tenant {self.tenant!r}; "
            f"declare it with Headrace(..., queues=[QueueConfig({self.name!r})])",
        )

    async def _check_capability_sets(self, tasks: Sequence[NewTask]) -> None:
        known = {name.decode() for name in await self._transport.execute("SMEMBERS", self.keys.capsets)}
        for index, task in enumerate(tasks):
            known.add(task.capabilities)
            if len(known) > MAX_CAPABILITY_SETS:
                raise too_many_capability_sets(index, len(tasks))

    async def _refusal(self, reply: list[Any], before: int, total: int) -> InvalidInput:
        problem, index, *details = reply
        index += before
        if problem == "unknown_level":
            return unknown_level(field_of("priority", index, total), await self.config(), details[0])
        if problem == "too_late":
            return delay_too_long(field_of("delay_s", index, total), wire.to_s(details[0]))
        if problem == "too_many_capability_sets":
            return too_many_capability_sets(index, total)
        size, limit = details
        return InvalidPayload(
            field_of("payload", index, total), f"is {size} bytes as JSON; at most {limit} are allowed"
        )


def _chunked(tasks: Sequence[NewTask]) -> list[Sequence[NewTask]]:
    chunks: list[Sequence[NewTask]] = []
    start = size = 0
    for index, task in enumerate(tasks):
        length = len(task.message)
        if index > start and (index - start >= MAX_TASKS_PER_CALL or size + length > MAX_BYTES_PER_CALL):
            chunks.append(tasks[start:index])
            start, size = index, 0
        size += length
    if start < len(tasks):
        chunks.append(tasks[start:])
    return chunks
