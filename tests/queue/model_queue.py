"""A queue in plain Python: what the documentation says a queue does, with no Redis in it.

The model keeps tasks and workers and nothing else. Where a task has to be found in Redis (which sorted set,
with which score) follows from its state, and a worker's load is the number of leases it holds; so the model
cannot lose a task or count one twice, and a Redis that differs from `ModelQueue.view` has done so.

All times are whole microseconds of the server's clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.model.config import QueueConfig, RetryPolicy
from headrace.model.errors import ConfigConflict
from headrace.model.outcomes import Outcome, Settlement, SettleStatus
from headrace.model.retry import attempt_timeout_s, backoff_s
from headrace.model.selection import choose_level
from headrace.model.states import TaskState
from headrace.model.task import ClaimedTask, NewTask
from headrace.model.task_rules import check_new_tasks

US = 1_000_000
RESENT_WITHIN_S = 60
THROUGHPUT_SLOT_US = 10 * US
DEAD_WORKER_KEPT_US = 3600 * US

WAITING_TO_BE_DUE = (TaskState.SCHEDULED, TaskState.RETRYING)
KEPT = (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(slots=True)
class ModelTask:
    """One task. Fields that have no meaning in the present state are None."""

    task_id: str
    message: str
    level: str
    capset: str
    max_retries: int
    timeout_us: int
    created_us: int
    place_us: int
    """Its place in the line: the moment from which it waits."""
    state: TaskState = TaskState.QUEUED
    promoted: str | None = None
    due_us: int | None = None
    retries: int = 0
    crashes: int = 0
    token: int = 0
    worker: str | None = None
    started_us: int | None = None
    lease_us: int | None = None
    """When the lease ends."""
    cancel: bool = False
    ended_us: int | None = None
    kept_until_us: int | None = None
    reason: str | None = None
    """Why it was dead-lettered."""
    attempts: list[tuple[int, str]] = field(default_factory=list)
    """Failed attempts: number and reason."""
    settled_as: dict[int, Outcome] = field(default_factory=dict)
    """What each lease, by its token, was settled with."""
    is_suspect: bool = False
    """Another crash, and it is taken for poison: it waits in a line of its own."""

    @property
    def effective_level(self) -> str:
        return self.promoted or self.level

    @property
    def line(self) -> str:
        return f"{self.capset}!" if self.is_suspect else self.capset


@dataclass(slots=True)
class ModelWorker:
    worker: str
    capabilities: str
    capacity: int
    idle_since_us: int
    heartbeat_us: int
    state: str = "active"
    parked: bool = False
    died_us: int | None = None
    last_claim: tuple[int, list[str]] | None = None

    def covers(self, capset: str) -> bool:
        return set(filter(None, capset.split(","))) <= set(self.capabilities.split(","))


class ExpectedClaim(msgspec.Struct, frozen=True):
    """What a claim must answer; the same fields as `headrace.queue.wire.ClaimReply`."""

    status: str
    tasks: list[ClaimedTask] = []
    next_due_in_s: float | None = None
    capsets: frozenset[str] = frozenset()


class _Jitter:
    """Several tasks may need jitter in one call: the scripts walk on from the one number they were given."""

    def __init__(self, random: float) -> None:
        self._random = random
        self._steps = 0

    def __call__(self) -> float:
        self._steps += 1
        return (self._random + self._steps * 0.6180339887498949) % 1


class ModelQueue:
    """One tenant's queue. Every verb changes the model and returns the answer that Redis has to give."""

    def __init__(self, config: QueueConfig, now_us: int) -> None:
        self.config = config
        self.now_us = now_us
        self.tasks: dict[str, ModelTask] = {}
        self.workers: dict[str, ModelWorker] = {}
        self.idempotency: dict[str, tuple[str, int]] = {}
        self.sent: dict[tuple[NewTask, ...], int] = {}
        """Key to task id and the last millisecond in which it counts."""
        self.capsets = {""}
        """The capability sets that workers are told to look for."""
        self.paused = False
        self.promoted_at_us = 0
        self.counters: Counter[str] = Counter()
        self.events: list[tuple[str, str]] = []
        self.ended: list[tuple[int, bool]] = []
        """When tasks ended, and whether well."""
        self.wake_due: set[str] = set()
        """Capability sets for which a wake-up must be lying ready: tasks came in, and no claim came up short since."""
        self.most_workers = 0
        self._made_ready: set[str] = set()
        self._sooner_due = False
        self._unheard_capset = False

    # ── configuration ────────────────────────────────────────────────────────────────────────────────

    def define(self, config: QueueConfig) -> None:
        """Raises `ConfigConflict` when a level that goes still has waiting tasks."""
        if config == self.config:
            return
        gone = set(self.config.level_names()) - set(config.level_names())
        if any(task.effective_level in gone for task in self._in_state(TaskState.QUEUED)):
            raise ConfigConflict("levels")
        self.config = config
        self._wake_everyone()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        if not paused:
            self._wake_everyone()

    # ── a task's way ─────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, tasks: Sequence[NewTask]) -> list[tuple[str, bool]]:
        """Raises when one task is not acceptable; nothing is stored then."""
        check_new_tasks(self.config, tasks)
        resent = self._is_resent(tasks)
        results = [self._enqueue_one(task, resent=resent) for task in tasks]
        self._wake_idle_workers()
        return results

    def _is_resent(self, tasks: Sequence[NewTask]) -> bool:
        """Whether this very call was made lately; asked only where a finished task may be gone by then."""
        if self.config.result_retention_s >= RESENT_WITHIN_S or not tasks:
            return False
        call = tuple(tasks)
        now_ms = self.now_us // 1000
        resent = self.sent.get(call, -1) >= now_ms
        if not resent:
            self.sent[call] = now_ms + RESENT_WITHIN_S * 1000
        return resent

    def _enqueue_one(self, new: NewTask, *, resent: bool) -> tuple[str, bool]:
        known = self._known_key(new.idempotency_key)
        if known and known != new.task_id:
            return known, True
        if known or resent or new.task_id in self.tasks:
            return new.task_id, False  # sent again: it is stored already
        level = next(lv for lv in self.config.levels if lv.name == (new.level or self.config.default_level))
        delay_us = round(new.delay_s * US)
        task = ModelTask(
            task_id=new.task_id,
            message=new.message,
            level=level.name,
            capset=new.capabilities,
            max_retries=level.max_retries if new.max_retries is None else new.max_retries,
            timeout_us=round((level.timeout_s if new.timeout_s is None else new.timeout_s) * US),
            created_us=self.now_us,
            place_us=self.now_us,
        )
        self.tasks[new.task_id] = task
        if new.idempotency_key:
            window_ms = math.ceil(round(self.config.idempotency_window_s * US) / 1000)
            self.idempotency[new.idempotency_key] = (new.task_id, self.now_us // 1000 + window_ms)
        if delay_us > 0:
            self._make_due(task, TaskState.SCHEDULED, self.now_us + delay_us)
        else:
            self._make_ready(task)
        self._event(task, "enqueued")
        return new.task_id, False

    def claim(
        self, worker_id: str, want: int, number: int, randoms: Sequence[float], random: float, repair_limit: int
    ) -> ExpectedClaim:
        worker = self.workers.get(worker_id)
        if worker is None or worker.state == "dead":
            return ExpectedClaim("unregistered")
        self._forward_due(repair_limit)
        self._reclaim_expired(repair_limit, _Jitter(random))
        had_suspect = any(task.worker == worker_id and task.is_suspect for task in self.leases())
        covered = self._covered(worker, had_suspect)

        status, claimed = "ok", []
        if worker.last_claim and worker.last_claim[0] == number:
            # The answer was lost on the way: the same tasks again, as far as it still holds them.
            held = (self.tasks.get(task_id) for task_id in worker.last_claim[1])
            claimed = [t for t in held if t and t.state is TaskState.EXECUTING and t.worker == worker_id]
        elif worker.state == "draining":
            status, worker.parked = "draining", True
        elif self.paused:
            status = "paused"
        else:
            claimed = self._lease_next(worker, covered, want, randoms)
            if claimed:
                worker.last_claim = (number, [task.task_id for task in claimed])
            covered = self._covered(worker, had_suspect or any(task.is_suspect for task in claimed))
            if len(claimed) < want:
                # Nothing is left for this worker: what would wake its like is taken away, and it knows the next
                # due time from this answer.
                self.wake_due -= covered
                self._made_ready -= covered
                self._sooner_due = False
        self._wake_idle_workers()
        tasks = [self._handed_out(task) for task in claimed]
        if tasks and len(tasks) >= want:
            return ExpectedClaim(status, tasks)  # its worker will not sleep, and is not told what to wait for
        soonest_us = self._soonest_us()
        return ExpectedClaim(
            status=status,
            tasks=tasks,
            next_due_in_s=None if soonest_us is None else max(0.0, (soonest_us - self.now_us) / US),
            capsets=covered,
        )

    def _covered(self, worker: ModelWorker, has_suspect: bool) -> frozenset[str]:
        """The lines the worker may claim from: nobody holds two suspects at a time."""
        return frozenset(
            line
            for line in self.capsets
            if worker.covers(line.removesuffix("!")) and not (has_suspect and line.endswith("!"))
        )

    def _lease_next(
        self, worker: ModelWorker, covered: frozenset[str], want: int, randoms: Sequence[float]
    ) -> list[ModelTask]:
        lines: dict[str, list[ModelTask]] = {name: [] for name in self.config.level_names()}
        for task in sorted(self._in_state(TaskState.QUEUED), key=_line_order, reverse=True):
            if task.line in covered:
                lines[task.effective_level].append(task)
        claimed: list[ModelTask] = []
        for random in randoms[:want]:
            waits = {name: (self.now_us - line[-1].place_us) / US for name, line in lines.items() if line}
            level = choose_level(self.config, waits, random)
            if level is None:
                break
            task = lines[level].pop()
            task.state = TaskState.EXECUTING
            task.token += 1
            task.worker = worker.worker
            task.started_us = self.now_us
            task.lease_us = self.now_us + min(round(self.config.lease_s * US), self._attempt_us(task))
            self._event(task, "claimed")
            claimed.append(task)
            if task.is_suspect:
                lines = {name: [t for t in line if not t.is_suspect] for name, line in lines.items()}
        return claimed

    def _handed_out(self, task: ModelTask) -> ClaimedTask:
        assert task.started_us is not None
        return ClaimedTask(
            task_id=task.task_id,
            message=task.message,
            token=task.token,
            retries=task.retries,
            timeout_s=self._attempt_us(task) / US,
            level=task.effective_level,
            created_at_s=task.created_us / US,
            waited_s=(task.started_us - task.place_us) / US,
        )

    def settle(self, settlements: Sequence[Settlement], random: float) -> list[set[SettleStatus]]:
        """For each settlement the answers that are right; there is more than one in a single case only."""
        jitter = _Jitter(random)
        statuses = [self._settle_one(settlement, jitter) for settlement in settlements]
        self._wake_idle_workers()
        return statuses

    def _settle_one(self, settlement: Settlement, jitter: _Jitter) -> set[SettleStatus]:
        task = self.tasks.get(settlement.task_id)
        if task is None:
            return {SettleStatus.GONE}
        if task.token != settlement.token:
            return {SettleStatus.LOST}
        if task.state is not TaskState.EXECUTING:
            if task.settled_as.get(settlement.token) is settlement.outcome:
                return {SettleStatus.DUPLICATE}
            # Ended before with another outcome, or a token that no lease ever had. Nothing may change; which
            # of the two a confused sender is told is not promised.
            return {SettleStatus.LOST, SettleStatus.DUPLICATE}
        task.settled_as[settlement.token] = settlement.outcome
        self._end_lease(task)
        self._apply(task, settlement, jitter)
        return {SettleStatus.SETTLED}

    def _apply(self, task: ModelTask, settlement: Settlement, jitter: _Jitter) -> None:
        outcome = settlement.outcome
        if task.cancel and outcome is not Outcome.COMPLETED:
            outcome = Outcome.CANCELLED  # work that is done is done; anything less gives way to a cancellation
        after_us = None if settlement.after_s is None else round(settlement.after_s * US)
        match outcome:
            case Outcome.COMPLETED:
                self._finish(task, TaskState.COMPLETED)
            case Outcome.FAILED:
                task.attempts.append((task.retries + 1, "failed"))
                self._finish(task, TaskState.FAILED)
            case Outcome.CANCELLED:
                self._finish(task, TaskState.CANCELLED)
            case Outcome.RETRY:
                self._retry_or_bury(task, "error", jitter, after_us)
            case Outcome.SNOOZED:
                # Its wait begins anew, at its own level; no attempt is spent.
                task.promoted = None
                self._make_due(task, TaskState.SCHEDULED, self.now_us + (after_us or 0))
                self._event(task, "snoozed")
            case Outcome.HANDED_BACK:
                level = self._existing(task.effective_level)
                task.promoted = None if level == task.level else level
                self._make_ready(task)
                self._event(task, "handed_back")

    def heartbeat(
        self, worker_id: str, *, status: str, capacity: int, capabilities: str, held: Sequence[tuple[str, int]]
    ) -> tuple[bool, list[str], list[str]]:
        """Returns draining, lost, cancelled."""
        lost, cancelled = [], []
        for task_id, token in held:
            task = self.tasks.get(task_id)
            if task is None or task.state is not TaskState.EXECUTING or task.token != token:
                lost.append(task_id)
                continue
            assert task.started_us is not None
            # A lease never outlives the attempt's timeout, however faithfully it is renewed.
            task.lease_us = min(self.now_us + round(self.config.lease_s * US), task.started_us + self._attempt_us(task))
            if task.cancel:
                cancelled.append(task_id)

        worker = self.workers.get(worker_id)
        if status == "stopped":
            if worker and self.load(worker_id) == 0:
                del self.workers[worker_id]
            elif worker and worker.state != "dead":
                # It has not handed everything back: like one that died, it is remembered for its leases.
                worker.state, worker.died_us = "dead", self.now_us
            return True, lost, cancelled
        if worker is None:
            worker = ModelWorker(worker_id, capabilities, capacity, idle_since_us=self.now_us, heartbeat_us=self.now_us)
            self.workers[worker_id] = worker
        draining = worker.state == "draining" or status == "draining"
        worker.state = "draining" if draining else "active"
        worker.parked = worker.parked and draining
        worker.capabilities, worker.capacity = capabilities, capacity
        worker.heartbeat_us, worker.died_us = self.now_us, None
        self.most_workers = max(self.most_workers, len(self._live()))
        return draining, lost, cancelled

    # ── repair ───────────────────────────────────────────────────────────────────────────────────────

    def forward(self, limit: int) -> int:
        moved = self._forward_due(limit)
        self._wake_idle_workers()
        return moved

    def reclaim(self, limit: int, random: float) -> tuple[int, list[str]]:
        reclaimed = self._reclaim_expired(limit, _Jitter(random))
        dead_before_us = self.now_us - round(self.config.worker_dead_after_s * US)
        silent = [worker for worker in self._live() if worker.heartbeat_us <= dead_before_us]
        silent = sorted(silent, key=lambda worker: (worker.heartbeat_us, worker.worker))[:limit]
        for worker in silent:
            worker.state, worker.died_us = "dead", self.now_us
        self.counters["dead_workers"] += len(silent)
        self._wake_idle_workers()
        return reclaimed, [worker.worker for worker in silent]

    def promote(self, *, force: bool) -> dict[tuple[str, str], int]:
        interval_us = round(self.config.promotion_interval_s * US)
        if not force and self.now_us - self.promoted_at_us < interval_us:
            return {}
        self.promoted_at_us = self.now_us
        moved: dict[tuple[str, str], int] = {}
        for rule in self.config.promotion_rules:
            aged_before_us = self.now_us - round(rule.after_s * US)
            aged = [
                task
                for task in self._in_state(TaskState.QUEUED)
                if task.effective_level == rule.source and task.place_us <= aged_before_us
            ]
            for task in sorted(aged, key=_line_order)[: rule.batch]:
                task.promoted = rule.target
                self._event(task, "promoted")
                moved[rule.source, rule.target] = moved.get((rule.source, rule.target), 0) + 1
        for (source, target), count in moved.items():
            self.counters[f"promoted:{source}:{target}"] += count
        return moved

    def purge(self, limit: int) -> tuple[int, int, int]:
        finished = [t for t in self._in_state(*KEPT) if t.kept_until_us is not None and t.kept_until_us <= self.now_us]
        finished = sorted(finished, key=lambda task: (task.kept_until_us, task.task_id))[:limit]
        dead: list[ModelTask] = []
        if self.config.dead_letter_retention_s is not None:
            dead_before_us = self.now_us - round(self.config.dead_letter_retention_s * US)
            dead = [task for task in self.dead_letters() if (task.ended_us or 0) <= dead_before_us][:limit]
        for task in (*finished, *dead):
            del self.tasks[task.task_id]

        forgotten_before_us = self.now_us - DEAD_WORKER_KEPT_US
        stale = [w for w in self.workers.values() if w.died_us is not None and w.died_us <= forgotten_before_us]
        stale = sorted(stale, key=lambda worker: (worker.died_us, worker.worker))[:limit]
        stale = [worker for worker in stale if self.load(worker.worker) == 0]
        for worker in stale:
            del self.workers[worker.worker]
        self.capsets = {""} | {task.line for task in self._in_state(TaskState.QUEUED)}
        return len(finished), len(dead), len(stale)

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────

    def cancel(self, task_ids: Sequence[str]) -> list[str]:
        return [self._cancel_one(self.tasks.get(task_id)) for task_id in task_ids]

    def _cancel_one(self, task: ModelTask | None) -> str:
        if task is None:
            return "not_found"
        if task.state is TaskState.EXECUTING:
            task.cancel = True
            return "cancelling"
        if not task.state.is_terminal:
            self._finish(task, TaskState.CANCELLED)
            return "cancelled"
        return task.state.value

    def replay(self, task_ids: Sequence[str], limit: int) -> tuple[list[str], list[tuple[str, str]]]:
        replayed, refused = [], []
        for task_id in task_ids or [task.task_id for task in self.dead_letters()[:limit]]:
            task = self.tasks.get(task_id)
            if task is None or task.state is not TaskState.DEAD_LETTER:
                refused.append((task_id, task.state.value if task else "not_found"))
                continue
            task.retries = task.crashes = 0
            task.promoted = task.reason = None
            task.level = self._existing(task.level)
            task.place_us = self.now_us
            self._make_ready(task)
            self._event(task, "replayed")
            replayed.append(task_id)
        self._wake_idle_workers()
        return replayed, refused

    def drain(self, workers: Sequence[str], *, idle_us: int, force: bool) -> list[str]:
        return [self._drain_one(self.workers.get(worker), idle_us, force) for worker in workers]

    def _drain_one(self, worker: ModelWorker | None, idle_us: int, force: bool) -> str:
        if worker is None:
            return "not_found"
        if worker.state == "dead":
            return "dead"
        if not force and self.load(worker.worker):
            return "busy"
        if not force and self.now_us - worker.idle_since_us < idle_us:
            return "not_idle_long_enough"
        worker.state = "draining"
        return "draining"

    def undrain(self, workers: Sequence[str]) -> list[str]:
        statuses = []
        for worker in map(self.workers.get, workers):
            if worker is None or worker.state == "dead":
                statuses.append("dead" if worker else "not_found")
            else:
                worker.state, worker.parked = "active", False
                statuses.append("active")
        return statuses

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────

    def load(self, worker: str) -> int:
        return sum(task.worker == worker for task in self._in_state(TaskState.EXECUTING))

    def leases(self) -> list[ModelTask]:
        return sorted(self._in_state(TaskState.EXECUTING), key=lambda task: task.task_id)

    def dead_letters(self) -> list[ModelTask]:
        """Oldest first."""
        dead = self._in_state(TaskState.DEAD_LETTER)
        return sorted(dead, key=lambda task: (task.ended_us, task.task_id))

    def position(self, task_id: str) -> tuple[int, int]:
        """The lowest and the highest position that is right; they differ when others wait from the same instant."""
        task = self.tasks[task_id]
        if task.state is not TaskState.QUEUED:
            return 0, 0
        order = self.config.level_names()
        ahead = level_with = 0
        for other in self._in_state(TaskState.QUEUED):
            if other is task:
                continue
            if other.effective_level == task.effective_level:
                ahead += other.place_us < task.place_us
                level_with += other.place_us == task.place_us
            elif self.config.selection == "strict":
                ahead += order.index(other.effective_level) < order.index(task.effective_level)
        return ahead + 1, ahead + level_with + 1

    def ended_last_minute(self, well: bool) -> int:
        oldest_slot = self.now_us // THROUGHPUT_SLOT_US - 5
        return sum(at // THROUGHPUT_SLOT_US >= oldest_slot for at, ended_well in self.ended if ended_well == well)

    def view(self) -> dict[str, Any]:
        """The whole queue in the shape in which the test reads it from Redis."""
        places: dict[str, Any] = {"ready": {}, "delayed": {}, "leases": {}, "dead": {}, "finished": {}}
        for task in self.tasks.values():
            match task.state:
                case TaskState.QUEUED:
                    line = places["ready"].setdefault((task.effective_level, task.line), {})
                    line[task.task_id] = task.place_us
                case TaskState.SCHEDULED | TaskState.RETRYING:
                    places["delayed"][task.task_id] = task.due_us
                case TaskState.EXECUTING:
                    places["leases"][task.task_id] = task.lease_us
                case TaskState.DEAD_LETTER:
                    places["dead"][task.task_id] = task.ended_us
                case _:
                    places["finished"][task.task_id] = task.kept_until_us
        return places | {
            "tasks": {task.task_id: task_view(task) for task in self.tasks.values()},
            "workers": {worker.worker: worker.heartbeat_us for worker in self._live()},
            "dead_workers": {w.worker: w.died_us for w in self.workers.values() if w.died_us is not None},
            "records": {worker.worker: self._worker_view(worker) for worker in self.workers.values()},
            "idempotency": {
                key: (task_id, until_ms)
                for key, (task_id, until_ms) in self.idempotency.items()
                if self.now_us // 1000 <= until_ms
            },
            "capsets": self.capsets,
            "paused": self.paused,
        }

    def _worker_view(self, worker: ModelWorker) -> dict[str, Any]:
        load = self.load(worker.worker)
        return {
            "state": worker.state,
            "load": load,
            "idle_since": None if load else worker.idle_since_us,
            "parked": worker.parked,
            "capabilities": worker.capabilities,
            "capacity": worker.capacity,
        }

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _in_state(self, *states: TaskState) -> Iterator[ModelTask]:
        return (task for task in self.tasks.values() if task.state in states)

    def _delayed(self) -> Iterator[ModelTask]:
        return self._in_state(*WAITING_TO_BE_DUE)

    def _live(self) -> list[ModelWorker]:
        return [worker for worker in self.workers.values() if worker.died_us is None]

    def _known_key(self, key: str) -> str | None:
        task_id, until_ms = self.idempotency.get(key, ("", -1)) if key else ("", -1)
        return task_id if self.now_us // 1000 <= until_ms else None

    def _existing(self, level: str) -> str:
        """A level that the configuration no longer has must not swallow a task: it goes to the lowest one."""
        names = self.config.level_names()
        return level if level in names else names[-1]

    def _attempt_us(self, task: ModelTask) -> int:
        return math.floor(attempt_timeout_s(self.config.retry, task.timeout_us / US, task.retries) * US)

    def _backoff_us(self, retries: int, random: float) -> int:
        policy = self.config.retry
        # Scaled to microseconds first, as the scripts have it: the arithmetic then is the same to the last bit.
        scaled = RetryPolicy(base_s=round(policy.base_s * US), max_s=round(policy.max_s * US), jitter=policy.jitter)
        return math.floor(backoff_s(scaled, retries, random))

    def _forward_due(self, limit: int) -> int:
        due = [task for task in self._delayed() if task.due_us is not None and task.due_us <= self.now_us]
        due = sorted(due, key=lambda task: (task.due_us, task.task_id))[:limit]
        for task in due:
            assert task.due_us is not None
            if task.state is TaskState.SCHEDULED:
                task.place_us = task.due_us  # it has waited since it became visible; a retry keeps its place
            task.level = self._existing(task.level)
            self._make_ready(task)
            self._event(task, "forwarded")
        return len(due)

    def _reclaim_expired(self, limit: int, jitter: _Jitter) -> int:
        expired = [t for t in self.leases() if t.lease_us is not None and t.lease_us <= self.now_us]
        expired = sorted(expired, key=lambda task: (task.lease_us, task.task_id))[:limit]
        for task in expired:
            assert task.started_us is not None
            timed_out = self.now_us >= task.started_us + self._attempt_us(task)
            task.token += 1  # whatever the old holder still sends is refused
            self._end_lease(task)
            if task.cancel:
                self._finish(task, TaskState.CANCELLED)
            elif timed_out:
                self.counters["timeouts"] += 1
                self._retry_or_bury(task, "timeout", jitter)
            else:
                self.counters["lease_expired"] += 1
                task.crashes += 1
                if task.crashes >= self.config.max_crashes:
                    task.attempts.append((task.retries + 1, "lease_expired"))
                    self._bury(task, "poison")
                else:
                    self._retry_or_bury(task, "lease_expired", jitter)
        return len(expired)

    def _retry_or_bury(self, task: ModelTask, reason: str, jitter: _Jitter, after_us: int | None = None) -> None:
        task.attempts.append((task.retries + 1, reason))
        if task.retries + 1 > task.max_retries:
            self._bury(task, "max_retries_exceeded")
            return
        delay_us = self._backoff_us(task.retries, jitter()) if after_us is None else after_us
        task.retries += 1
        task.promoted = None
        task.level = self._existing(task.level)
        if delay_us > 0:
            self._make_due(task, TaskState.RETRYING, self.now_us + delay_us)
        else:
            self._make_ready(task)
        self._event(task, "retrying")
        self.counters[f"retrying:{task.level}:{reason}"] += 1

    def _make_ready(self, task: ModelTask) -> None:
        task.state, task.due_us, task.ended_us = TaskState.QUEUED, None, None
        task.is_suspect = task.crashes > 0 and task.crashes >= self.config.max_crashes - 1
        self._made_ready.add(task.line)
        if task.line not in self.capsets:
            self.capsets.add(task.line)
            self._unheard_capset = True

    def _make_due(self, task: ModelTask, state: TaskState, due_us: int) -> None:
        soonest_us = self._soonest_us()
        self._sooner_due = self._sooner_due or soonest_us is None or due_us < soonest_us
        task.state, task.due_us = state, due_us

    def _soonest_us(self) -> int | None:
        return min((task.due_us for task in self._delayed() if task.due_us is not None), default=None)

    def _end_lease(self, task: ModelTask) -> None:
        """The task leaves its holder; what becomes of it is decided next."""
        holder = self.workers.get(task.worker or "")
        if holder and self.load(holder.worker) == 1:
            holder.idle_since_us = self.now_us
        task.worker = task.started_us = task.lease_us = None

    def _finish(self, task: ModelTask, state: TaskState) -> None:
        retention_us = round(self.config.result_retention_s * US)
        task.state, task.ended_us, task.due_us = state, self.now_us, None
        task.kept_until_us = self.now_us + retention_us
        if retention_us == 0:
            del self.tasks[task.task_id]
        if state is not TaskState.CANCELLED:
            self.ended.append((self.now_us, state is TaskState.COMPLETED))
            self.counters[f"{state.value}:{task.level}"] += 1
        self._event(task, state.value)

    def _bury(self, task: ModelTask, reason: str) -> None:
        task.state, task.reason, task.ended_us = TaskState.DEAD_LETTER, reason, self.now_us
        self.ended.append((self.now_us, False))
        self._event(task, "dead_letter")
        self.counters[f"dead_letter:{task.level}:{reason}"] += 1

    def _event(self, task: ModelTask, kind: str) -> None:
        self.events.append((task.task_id, kind))
        self.counters[kind] += 1

    # Idle workers block until they are woken. The model does not count wake-ups; it knows where one may not
    # be missing. Nothing in the tests takes one away but a claim that finds less than it wants.

    def _wake_idle_workers(self) -> None:
        if self._live():
            self.wake_due |= self._made_ready
            # An idle worker sleeps until the earliest due time it knows of, and does not listen for a set that it
            # has never heard of.
            if self._sooner_due or self._unheard_capset:
                self.wake_due.add("")
        self._made_ready, self._sooner_due, self._unheard_capset = set(), False, False

    def _wake_everyone(self) -> None:
        if self._live():
            self.wake_due.add("")


def _line_order(task: ModelTask) -> tuple[int, str]:
    """First come, first served; ids break ties, because they rise in the order of their making."""
    return task.place_us, task.task_id


def task_view(task: ModelTask) -> dict[str, Any]:
    """What can be said about a task in its present state."""
    executing = task.state is TaskState.EXECUTING
    return {
        "state": task.state.value,
        "message": task.message,
        "level": task.level,
        "effective_level": task.effective_level if executing or task.state is TaskState.QUEUED else None,
        "capset": task.capset,
        "max_retries": task.max_retries,
        "timeout_us": task.timeout_us,
        "created_us": task.created_us,
        "place_us": task.place_us,
        "token": task.token,
        "retries": task.retries,
        "crashes": task.crashes,
        "worker": task.worker,
        "started_us": task.started_us,
        "cancel": executing and task.cancel,
        "reason": task.reason,
        "attempts": list(task.attempts),
    }
