"""What travels between Python and the scripts: one msgpack text in, one out.

Python's cost per argument is far above Redis' cost of unpacking, so a batch of any size is one argument.
Time travels in whole microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from headrace.model.config import MAX_DURATION_S, QueueConfig
from headrace.model.figures import (
    LevelCounters,
    LevelFigures,
    Pulse,
    QueueCounters,
    QueueStats,
    WorkerFigures,
    WorkerPulse,
    WorkerRecord,
    percentiles,
)
from headrace.model.outcomes import Problem, SettleStatus
from headrace.model.payload import size_of
from headrace.model.retry import attempt_timeout_s
from headrace.model.states import TaskState, WorkerActivity, WorkerState
from headrace.model.task import Attempt, ClaimedTask, NewTask, TaskMessage, TaskRecord
from headrace.model.task_rules import MAX_CAPABILITY_SETS
from headrace.model.trace import of_task

_US = 1_000_000

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


def to_us(seconds: float) -> int:
    return round(seconds * _US)


def to_s(microseconds: float) -> float:
    return microseconds / _US


CONFIG_FORMAT = 3
"""To be raised when the scripts come to read something new in what `script_config` makes."""


def script_config(config: QueueConfig) -> dict[str, Any]:
    """The configuration as the scripts read it, setting by setting."""
    levels = {
        f"level:{level.name}": {
            "weight": level.weight,
            # As text: they go into a task's own text as they are.
            "max_retries": str(level.max_retries),
            "timeout_us": str(to_us(level.timeout_s)),
        }
        for level in config.levels
    }
    default = levels[f"level:{config.default_level}"]
    return levels | {
        "for_enqueue": [
            config.default_level,
            default["max_retries"],
            default["timeout_us"],
            to_us(config.max_delay_s),
            config.max_payload_bytes,
            to_us(config.result_retention_s),
            str(config.events_max),
        ],
        "for_claim": [
            config.level_names(),
            config.selection,
            to_us(config.lease_s),
            config.retry.timeout_factor,
            to_us(MAX_DURATION_S),
            str(config.events_max),
        ],
        "level_names": config.level_names(),
        "selection": config.selection,
        "boosts": [{"after_us": to_us(boost.after_s), "factor": boost.factor} for boost in config.boosts],
        "promotions": [
            {"source": rule.source, "target": rule.target, "after_us": to_us(rule.after_s), "batch": rule.batch}
            for rule in config.promotion_rules
        ],
        "promotion_interval_us": to_us(config.promotion_interval_s),
        "backoff_base_us": to_us(config.retry.base_s),
        "backoff_max_us": to_us(config.retry.max_s),
        "backoff_jitter": config.retry.jitter,
        "timeout_factor": config.retry.timeout_factor,
        "max_duration_us": to_us(MAX_DURATION_S),
        "lease_us": to_us(config.lease_s),
        "worker_dead_after_us": to_us(config.worker_dead_after_s),
        "max_crashes": config.max_crashes,
        "idempotency_window_us": to_us(config.idempotency_window_s),
        "result_retention_us": to_us(config.result_retention_s),
        "dead_retention_us": to_us(config.dead_letter_retention_s or 0),
        "max_capability_sets": MAX_CAPABILITY_SETS,
        "events_max": str(config.events_max),
    }


Summary: TypeAlias = tuple[list[str], list[str], int, int]
"""Levels, capability sets, longest delay in µs and largest message in bytes."""


def enqueue_summary(tasks: Sequence[NewTask]) -> Summary:
    """What each call of an enqueue has to know of the others, to store all of it or nothing."""
    return (
        list(dict.fromkeys([task.level for task in tasks])),
        list(dict.fromkeys([task.capabilities for task in tasks])),
        to_us(max([task.delay_s for task in tasks])),
        max([size_of(task.message) for task in tasks]),
    )


def enqueue_request(tasks: Sequence[NewTask], whole: Summary | None = None) -> tuple[Any, ...]:
    """Tasks as `enqueue.lua` reads them: what they have in common ("shape") is said once.

    ``whole`` sums up the enqueue that they are a part of; none if they are all of it.
    """
    shapes: list[Any] = []
    numbers: dict[tuple[Any, ...], int] = {}
    rows: list[Any] = []
    for task in tasks:
        common = (task.level, task.capabilities, task.delay_s, task.max_retries, task.timeout_s)
        number = numbers.get(common)
        if number is None:
            shapes += _shape(task)
            number = numbers[common] = len(numbers) + 1
        rows += (task.task_id, number, task.message, task.idempotency_key)
    return (shapes, rows) if whole is None else (shapes, rows, whole)


def _shape(task: NewTask) -> tuple[Any, ...]:
    return (
        task.level,
        task.capabilities,
        to_us(task.delay_s),
        -1 if task.max_retries is None else task.max_retries,
        -1 if task.timeout_s is None else to_us(task.timeout_s),
    )


def settle_statuses(reply: list[Any], count: int) -> list[SettleStatus]:
    """One status for each of ``count`` settlements; the answer names the exceptions only."""
    statuses = [SettleStatus.SETTLED] * count
    for index, status in reply[1]:
        statuses[index] = SettleStatus(status)
    return statuses


def event_rows(packed: bytes) -> list[tuple[str, str, str, int, str, str]]:
    """An entry of the event stream, a row for each task: id, what happened, level, attempt, worker, detail."""
    return [
        (task_id, kind, level, attempt, worker, detail)
        for kind, level, attempt, worker, detail, task_ids in unpack(packed)
        for task_id in task_ids
    ]


class ClaimReply(msgspec.Struct, frozen=True):
    """The answer to a claim."""

    status: str
    """ok, paused, draining or unregistered."""
    at_s: float
    """When it was answered, by Redis' clock."""
    tasks: list[ClaimedTask]
    next_due_in_s: float | None
    """When the next delayed task becomes due; None when there is none."""
    capsets: list[str]
    """The capability sets to block on."""
    next_expiry_in_s: float | None
    """When the next lease ends, unless it is renewed until then; None when there is none."""

    @property
    def next_repair_in_s(self) -> float | None:
        """When the next claim may find something that no enqueue announces."""
        moments = [moment for moment in (self.next_due_in_s, self.next_expiry_in_s) if moment is not None]
        return min(moments, default=None)


class _ClaimAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What `claim.lua` returns, decoded into its final types in one go."""

    status: str
    now_us: int = 0
    next_due_us: int = 0
    tasks: list[ClaimedTask] = []
    capsets: list[str] = []
    next_expiry_us: int = 0


_decode_claim = msgspec.msgpack.Decoder(_ClaimAnswer).decode


def claim_reply(packed: bytes) -> ClaimReply:
    answer = _decode_claim(packed)
    return ClaimReply(
        status=answer.status,
        at_s=to_s(answer.now_us),
        tasks=answer.tasks,
        next_due_in_s=max(0.0, to_s(answer.next_due_us - answer.now_us)) if answer.next_due_us else None,
        capsets=answer.capsets,
        next_expiry_in_s=max(0.0, to_s(answer.next_expiry_us - answer.now_us)) if answer.next_expiry_us else None,
    )


def problem_from(text: str) -> Problem:
    return msgspec.json.decode(text, type=Problem)


def _optional_time(fields: dict[str, str], name: str) -> float | None:
    return to_s(float(fields[name])) if name in fields else None


def _paired(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def task_record(task_id: str, queue: str, config: QueueConfig, flat: list[Any]) -> TaskRecord:
    """A task's hash, as `watch.lua` returns it, for people."""
    fields = _paired(flat)
    message = msgspec.json.decode(fields["msg"], type=TaskMessage)
    level, max_retries, timeout_us, created_us, capset = fields["spec"].split(" ")
    retries = int(fields.get("retries", 0))
    return TaskRecord(
        task_id=task_id,
        queue=queue,
        type=message.type,
        state=TaskState(fields["state"]),
        priority=level,
        effective_priority=fields.get("promoted", level),
        capabilities=tuple(filter(None, capset.split(","))),
        args=list(message.args),
        kwargs=message.kwargs,
        traceparent=of_task(task_id, message.traceparent),
        retry_count=retries,
        max_retries=int(max_retries),
        timeout_s=attempt_timeout_s(config.retry, to_s(float(timeout_us)), retries),
        created_at_s=to_s(float(created_us)),
        started_at_s=_optional_time(fields, "started_us"),
        finished_at_s=_optional_time(fields, "finished_us"),
        worker=fields.get("worker"),
        result=msgspec.json.decode(fields["result"]) if fields.get("result") else None,
        problem=problem_from(fields["error"]) if fields.get("error") else None,
        reason=fields.get("reason", ""),
        progress=msgspec.json.decode(fields["progress"]) if "progress" in fields else None,
        cancel_requested="cancel" in fields,
        history=tuple(
            Attempt(number, worker, to_s(started_us), to_s(ended_us), reason, problem_from(problem))
            for number, worker, started_us, ended_us, reason, problem in fields.get("history", ())
        ),
    )


def queue_stats(reply: list[Any]) -> QueueStats:
    """The answer of `stats.lua`, for people."""
    _, now_us, levels, places, workers, dead_workers, stats, completed, failed, samples, paused = reply
    fields = _paired(stats)
    waits, runs = [], []
    for sample in samples:
        wait, _, run = sample.partition(":")
        waits.append(to_s(float(wait)))
        runs.append(to_s(float(run)))
    return QueueStats(
        at_s=to_s(now_us),
        paused=paused,
        levels={
            name: LevelFigures(
                depth=depth,
                oldest_age_s=to_s(max(0, now_us - oldest_us)) if oldest_us else 0.0,
                last_enqueue_at_s=_optional_time(fields, f"last_enqueue:{name}"),
                last_dequeue_at_s=_optional_time(fields, f"last_dequeue:{name}"),
            )
            for name, depth, oldest_us in levels
        },
        executing=places[0],
        delayed=places[1],
        dead_letter=places[2],
        finished=places[3],
        workers=WorkerFigures(
            active=sum(state == "active" for state, _, _ in workers),
            draining=sum(state == "draining" for state, _, _ in workers),
            dead=dead_workers,
            total_capacity=sum(capacity for _, _, capacity in workers),
            used_capacity=sum(load for _, load, _ in workers),
        ),
        completed_last_minute=completed,
        failed_last_minute=failed,
        wait=percentiles(waits),
        run=percentiles(runs),
        counters={
            name: int(value)
            for name, value in fields.items()
            if not name.startswith(("last_enqueue:", "last_dequeue:")) and name != "promoted_at_us"
        },
    )


def capset_of(line: str) -> str:
    """The capability set whose tasks stand in a line, whether or not they are suspects."""
    return line.removesuffix("!")


def pulse(reply: list[Any]) -> Pulse:
    """The answer of `pulse.lua`, for an operator."""
    _, now_us, paused, levels, places, workers, dead_workers, completed, failed, due, *scaling, counted = reply
    waiting, due_soon, service, room = scaling
    claimed, enqueued, orphans, promoted, ended = counted
    forward, reclaim, promote, purge = (to_s(moment_us) if moment_us else None for moment_us in due)
    return Pulse(
        at_s=to_s(now_us),
        paused=paused,
        levels=tuple((name, depth, to_s(oldest_us) if oldest_us else None) for name, depth, oldest_us in levels),
        executing=places[0],
        delayed=places[1],
        dead_letter=places[2],
        finished=places[3],
        workers=tuple(
            WorkerPulse(worker, WorkerState(state), load, capacity, parked, host, to_s(idle_since_us))
            for worker, state, load, capacity, parked, host, idle_since_us in sorted(workers)
        ),
        workers_dead=dead_workers,
        completed_last_minute=completed,
        failed_last_minute=failed,
        promoted=sum(count for _, _, count in promoted),
        forward_at_s=forward,
        reclaim_at_s=reclaim,
        promote_at_s=promote,
        purge_at_s=purge,
        waiting=tuple((level, capset_of(line), depth) for level, line, depth in waiting),
        due_soon=due_soon,
        claimed=claimed,
        service=tuple((level, runs, to_s(run_us / runs)) for level, runs, run_us in service if runs > 0),
        room=room if room >= 0 else None,
        counters=QueueCounters(
            enqueued=enqueued,
            orphans=orphans,
            promoted=tuple((source, target, count) for source, target, count in promoted),
            levels=tuple(LevelCounters(*row) for row in ended),
        ),
    )


WORKER_FIELDS = (
    "state",
    "load",
    "idle_since_us",
    "parked",
    "capacity",
    "caps",
    "version",
    "host",
    "registered_us",
    "heartbeat_us",
)


def worker_record(worker: str, fields: dict[str, str]) -> WorkerRecord:
    """A worker's hash, for people."""
    load = int(fields.get("load", 0))
    return WorkerRecord(
        worker=worker,
        state=WorkerState(fields["state"]),
        activity=WorkerActivity.BUSY if load > 0 else WorkerActivity.IDLE,
        idle_since_s=None if load > 0 else to_s(float(fields["idle_since_us"])),
        parked="parked" in fields,
        capacity=int(fields.get("capacity", 0)),
        load=load,
        capabilities=tuple(filter(None, fields.get("caps", "").split(","))),
        version=fields.get("version", ""),
        host=fields.get("host", ""),
        registered_at_s=to_s(float(fields["registered_us"])),
        heartbeat_at_s=to_s(float(fields["heartbeat_us"])),
    )
