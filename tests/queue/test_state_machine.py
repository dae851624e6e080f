"""The real scripts on a real Redis, held against a model in plain Python, over random histories.

Two tenants use a queue of the same name at once, with the same task ids, worker ids and idempotency keys: the
hardest case for keeping them apart. After every step the whole database is read and compared with what the
two models say, key by key. The server's clock stands still except where a rule moves it, so every answer is
exact.

A failure prints the seed; ``HEADRACE_STATE_MACHINE_SEED=… pytest tests/queue/test_state_machine.py`` runs the
same histories again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ClassVar

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import headrace.queue.queue as queue_module
from headrace.model.config import Boost, Level, Promotion, QueueConfig, RetryPolicy
from headrace.model.errors import ConfigConflict, UnknownLevel
from headrace.model.outcomes import Outcome, Settlement, SettleStatus
from headrace.model.states import TaskState
from headrace.model.task import NewTask
from headrace.queue import wire
from headrace.queue.inspection import Inspector
from headrace.queue.keys import queue_names_key
from headrace.queue.queue import Queue
from headrace.queue.transport import ScriptCall
from tests.queue.model_queue import US, ModelQueue, ModelTask
from tests.support.redis_server import RedisServer

QUEUE = "work"
WORKERS = ("w1", "w2", "w3")
CAPSETS = ("", "gpu", "eu", "eu,gpu")
UNKNOWN_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"
PROBLEM = '{"type":"ValueError","message":"no"}'

# Durations are whole seconds or binary fractions of them, so that floats stay exact on both sides.
CONFIGS = (
    QueueConfig(
        QUEUE,
        levels=(Level("high", 1.0, 2, 16.0), Level("medium", 1.0, 1, 64.0), Level("low", 1.0, 0, 600.0)),
        promotions=(Promotion("low", "medium", 40.0, 2), Promotion("medium", "high", 90.0, 1)),
        retry=RetryPolicy(base_s=1.0, max_s=4.0),
        result_retention_s=120.0,
    ),
    QueueConfig(
        QUEUE,
        levels=(Level("a", 1.0), Level("b", 0.7), Level("c", 0.4), Level("d", 0.2), Level("e", 0.1)),
        selection="weighted",
        boosts=(Boost(30.0, 1.5), Boost(60.0, 1.75), Boost(90.0, 2.0)),
        retry=RetryPolicy(base_s=2.0, max_s=300.0, jitter=0.5),
        result_retention_s=0.0,
        dead_letter_retention_s=None,
        idempotency_window_s=45.0,
        max_crashes=2,
    ),
    QueueConfig(
        QUEUE,
        levels=(Level("now", 6.0, 3, 20.0), Level("later", 1.0, 5, 300.0)),
        selection="weighted",
        promotions=(Promotion("later", "now", 30.0, 3),),
        promotion_interval_s=20.0,
        retry=RetryPolicy(base_s=0.0, max_s=0.0),
        dead_letter_retention_s=300.0,
        idempotency_window_s=0.25,
        max_crashes=1,
        lease_s=8.0,
        heartbeat_s=4.0,
        worker_dead_after_s=16.0,
    ),
    QueueConfig(
        QUEUE,
        levels=(Level("high", 1.0, 9, 300.0), Level("low", 1.0, 9, 300.0)),
        promotions=(Promotion("low", "high", 10.0, 100),),
        retry=RetryPolicy(base_s=0.0, max_s=0.0),
        result_retention_s=0.0,
        max_crashes=3,
        events_max=0,
    ),
)

SNAPSHOT = """
local entries = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local value = 0
  if kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'list' then value = redis.call('LLEN', key)
  elseif kind == 'string' then value = {redis.call('GET', key), redis.call('PEXPIRETIME', key)}
  elseif kind == 'hash' then
    value = redis.call('HGETALL', key)
    for i = 1, #value, 2 do
      if value[i] == 'history' then value[i + 1] = cmsgpack.unpack(value[i + 1])
      elseif value[i] == 'packed' or value[i] == 'claimed' then value[i + 1] = '' end
    end
  end
  entries[#entries + 1] = {key, kind, value}
end
return cmsgpack.pack(entries)
"""


# ── driving the queue ────────────────────────────────────────────────────────────────────────────────────


class SyncTransport:
    """Runs the same calls as the real transport, one after the other on a plain connection."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._loaded: set[str] = set()

    async def run(self, *calls: ScriptCall) -> list[Any]:
        return [self._run_one(call) for call in calls]

    async def execute(self, *args: Any) -> Any:
        return self._client.execute_command(*args)

    def _run_one(self, call: ScriptCall) -> Any:
        script = call.script
        if script.sha not in self._loaded:
            self._client.execute_command("SCRIPT", "LOAD", script.source)
            self._loaded.add(script.sha)
        return self._client.execute_command("EVALSHA", script.sha, len(call.keys), *call.keys, *call.args)


def finished(verb: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits; no event loop is needed for that."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the coroutine waits for something")


class ScriptedRandom:
    """Stands in for the ``random`` module of `headrace.queue.queue`: hands out the numbers the test has set."""

    def __init__(self) -> None:
        self.numbers: list[float] = []

    def random(self) -> float:
        return self.numbers.pop(0)


class Tenant:
    """One tenant's queue in Redis, the model of it, and what the test remembers to send once more."""

    def __init__(self, name: str, transport: SyncTransport, config: QueueConfig, now_us: int) -> None:
        self.name = name
        self.queue = Queue(transport, name, QUEUE)  # type: ignore[arg-type]
        self.inspector = Inspector(transport, self.queue)  # type: ignore[arg-type]
        self.first_config = config
        self.model = ModelQueue(config, now_us)
        self.claim_numbers: Counter[str] = Counter()
        self.sent: list[NewTask] = []
        self.past_leases: list[tuple[str, int]] = []
        self.past_settlements: list[Settlement] = []
        self.settled: Counter[tuple[str, int]] = Counter()
        self.last_seen: dict[str, tuple[str, int]] = {}
        self.events_seen = 0
        self.last_event_id = "-"
        finished(self.queue.define(config))


class QueueMachine(RuleBasedStateMachine):
    """Two tenants, one server. `server` is set by a subclass, see `bound_to`."""

    server: ClassVar[RedisServer]
    client: ClassVar[redis.Redis]
    transport: ClassVar[SyncTransport]
    snapshot_sha: ClassVar[str]
    runs: ClassVar[Iterator[int]]
    steps: ClassVar[int]
    full_check_every: ClassVar[int] = 8

    def __init__(self) -> None:
        super().__init__()
        self.run_number = next(self.runs)
        self.tenants: list[Tenant] = []
        self.serial = itertools.count(1)
        self.step = -1  # the initialize rule is not counted
        self.random = ScriptedRandom()
        self.verb = "define"
        queue_module.random = self.random  # type: ignore[assignment]

    def teardown(self) -> None:
        queue_module.random = random
        keys = [key for key in self.client.keys("*") if f"r{self.run_number}-".encode() in key]
        if keys:
            self.client.unlink(*keys)

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────

    @initialize(configs=st.tuples(st.integers(0, len(CONFIGS) - 1), st.integers(0, len(CONFIGS) - 1)))
    def define(self, configs: tuple[int, int]) -> None:
        now_us = self.server.clock.now_us
        for letter, number in zip("ab", configs, strict=True):
            name = f"r{self.run_number}-{letter}"
            self.tenants.append(Tenant(name, self.transport, CONFIGS[number], now_us))
        for tenant in self.tenants:  # most histories are about queues that have workers
            for worker in WORKERS[:2]:
                self._heartbeat(tenant, worker, capabilities="gpu")

    @rule(
        who=st.booleans(),
        specs=st.lists(
            st.tuples(
                st.integers(0, 5),  # level; 0 names none
                st.sampled_from((0.0, 0.0, 0.0, 0.5, 3.0, 40.0)),  # delay
                st.sampled_from(("", "", "gpu", "eu", "eu,gpu")),
                st.sampled_from(("", "", "", "k1", "k2", "k3")),
                st.sampled_from((None, None, 0, 1)),  # max_retries
                st.sampled_from((None, None, 4.0, 90.0)),  # timeout
            ),
            min_size=1,
            max_size=5,
        ),
        backwards=st.booleans(),
    )
    def enqueue(self, who: bool, specs: list[Any], backwards: bool) -> None:
        tenant = self._tenant(who, "enqueue")
        levels = ("", *tenant.model.config.level_names())
        tasks = []
        for level, delay_s, capset, key, max_retries, timeout_s in specs:
            number = next(self.serial)
            tasks.append(
                NewTask(
                    task_id=f"00000000-0000-7000-8000-{number:012x}",
                    message=f'{{"type":"t{number}"}}',
                    level=levels[level % len(levels)],
                    capabilities=capset,
                    delay_s=delay_s,
                    max_retries=max_retries,
                    timeout_s=timeout_s,
                    idempotency_key=key,
                )
            )
        # Ids that do not rise with the order of arrival: ties are broken by the id, not by who came first.
        self._enqueue(tenant, tasks[::-1] if backwards else tasks)

    @rule(who=st.booleans(), picks=st.lists(st.integers(0, 99), min_size=1, max_size=4), other=st.booleans())
    def enqueue_again(self, who: bool, picks: list[int], other: bool) -> None:
        """The same ids once more, because an answer was lost; or those that the other tenant has sent."""
        tenant = self._tenant(who, "enqueue")
        known = (self.tenants[not who] if other else tenant).sent
        levels = tenant.model.config.level_names()
        tasks = [known[pick % len(known)] for pick in picks] if known else []
        tasks = [task if task.level in levels else msgspec.structs.replace(task, level="") for task in tasks]
        self._enqueue(tenant, tasks)

    @rule(who=st.booleans(), good=st.integers(0, 2))
    def enqueue_with_a_bad_one(self, who: bool, good: int) -> None:
        """All or nothing: one task that is not acceptable keeps the whole batch out."""
        tenant = self._tenant(who, "enqueue")
        tasks = [NewTask(f"00000000-0000-7000-8000-{next(self.serial):012x}", "{}") for _ in range(good + 1)]
        tasks[good] = msgspec.structs.replace(tasks[good], level="no-such-level")
        with pytest.raises(UnknownLevel) as expected:
            tenant.model.enqueue(tasks)
        with pytest.raises(UnknownLevel) as refused:
            finished(tenant.queue.enqueue(tasks))
        assert str(refused.value) == str(expected.value)

    @rule(who=st.booleans(), worker=st.sampled_from(WORKERS), want=st.integers(0, 5), dice=st.integers(0, 999))
    def claim(self, who: bool, worker: str, want: int, dice: int) -> None:
        tenant = self._tenant(who, "claim")
        tenant.claim_numbers[worker] += 1
        self._claim(tenant, worker, want, dice)

    @rule(who=st.booleans(), worker=st.sampled_from(WORKERS), want=st.integers(0, 5), dice=st.integers(0, 999))
    def claim_again(self, who: bool, worker: str, want: int, dice: int) -> None:
        """The number of the last claim once more, because its answer was lost."""
        self._claim(self._tenant(who, "claim"), worker, want, dice)

    @rule(
        who=st.booleans(),
        rows=st.lists(
            st.tuples(
                st.sampled_from(("held", "held", "held", "again", "stale", "ahead", "swapped", "any", "unknown")),
                st.integers(0, 99),
                st.sampled_from(Outcome),
                st.sampled_from((None, 0.0, 0.5, 10.0)),
            ),
            min_size=1,
            max_size=4,
        ),
        dice=st.integers(0, 999),
    )
    def settle(self, who: bool, rows: list[tuple[str, int, Outcome, float | None]], dice: int) -> None:
        tenant = self._tenant(who, "settle")
        settlements = [self._settlement(tenant, *row) for row in rows]
        self._settle(tenant, settlements, dice)

    @rule(who=st.booleans(), worker=st.sampled_from(WORKERS), want=st.integers(1, 3), dice=st.integers(0, 999))
    def work(self, who: bool, worker: str, want: int, dice: int) -> None:
        """What a busy worker does all day: everything it holds is done, and the next tasks please."""
        tenant = self._tenant(who, "settle_and_claim")
        tenant.claim_numbers[worker] += 1
        held = [task for task in tenant.model.leases() if task.worker == worker]
        done = [Settlement(task.task_id, task.token, Outcome.COMPLETED, "1") for task in held]
        settle_random, *claim_randoms = _random_numbers(dice, want + 2)
        self.random.numbers = [settle_random, *claim_randoms]
        number = tenant.claim_numbers[worker]
        expected_statuses = tenant.model.settle(done, settle_random)
        expected = tenant.model.claim(worker, want, number, claim_randoms[:-1], claim_randoms[-1], 200)
        statuses, reply = finished(tenant.queue.settle_and_claim(done, worker, want, number=number))
        self._check_settled(tenant, done, expected_statuses, statuses)
        self._check_claimed(tenant, expected, reply)

    @rule(
        who=st.booleans(),
        worker=st.sampled_from(WORKERS),
        status=st.sampled_from(("active", "active", "active", "draining", "stopped")),
        capabilities=st.sampled_from(CAPSETS),
        stale=st.integers(0, 9),
    )
    def heartbeat(self, who: bool, worker: str, status: str, capabilities: str, stale: int) -> None:
        tenant = self._tenant(who, "heartbeat")
        held = [(task.task_id, task.token) for task in tenant.model.leases() if task.worker == worker]
        if stale < 4 and tenant.past_leases:
            held.append(tenant.past_leases[-1 - stale % len(tenant.past_leases)])
        elif stale == 4:
            held.append((UNKNOWN_ID, 1))
        elif stale == 5:
            held = []  # alive, and silent about its leases
        self._heartbeat(tenant, worker, status=status, capabilities=capabilities, held=held)

    @rule(who=st.booleans(), limit=st.sampled_from((1, 2, 1000)))
    def forward(self, who: bool, limit: int) -> None:
        tenant = self._tenant(who, "forward")
        assert finished(tenant.queue.forward(limit)) == tenant.model.forward(limit)

    @rule(who=st.booleans(), limit=st.sampled_from((1, 2, 1000)), dice=st.integers(0, 999))
    def reclaim(self, who: bool, limit: int, dice: int) -> None:
        tenant = self._tenant(who, "reclaim")
        self.random.numbers = _random_numbers(dice, 1)
        expected = tenant.model.reclaim(limit, self.random.numbers[0])
        assert finished(tenant.queue.reclaim(limit)) == expected

    @rule(who=st.booleans(), force=st.booleans())
    def promote(self, who: bool, force: bool) -> None:
        tenant = self._tenant(who, "promote")
        assert finished(tenant.queue.promote(force=force)) == tenant.model.promote(force=force)

    @rule(who=st.booleans(), picks=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def cancel(self, who: bool, picks: list[int]) -> None:
        tenant = self._tenant(who, "cancel")
        ids = self._any_ids(tenant, picks)
        assert finished(tenant.queue.cancel(ids)) == tenant.model.cancel(ids)

    @rule(who=st.booleans(), picks=st.lists(st.integers(0, 99), max_size=3), limit=st.integers(1, 3))
    def replay(self, who: bool, picks: list[int], limit: int) -> None:
        """Dead letters and others by id; without any id, the oldest dead letters."""
        tenant = self._tenant(who, "replay")
        dead = [task.task_id for task in tenant.model.dead_letters()]
        ids = [dead[pick % len(dead)] if dead and pick % 2 else self._any_ids(tenant, [pick])[0] for pick in picks]
        assert finished(tenant.queue.replay(ids, limit=limit)) == tenant.model.replay(ids, limit)

    @rule(
        who=st.booleans(),
        workers=st.lists(st.sampled_from((*WORKERS, "nobody")), min_size=1, max_size=2),
        idle_s=st.sampled_from((0.0, 5.0, 120.0)),
        force=st.booleans(),
    )
    def drain(self, who: bool, workers: list[str], idle_s: float, force: bool) -> None:
        tenant = self._tenant(who, "drain")
        expected = tenant.model.drain(workers, idle_us=round(idle_s * US), force=force)
        assert finished(tenant.queue.drain(workers, idle_s=idle_s, force=force)) == expected

    @rule(who=st.booleans(), workers=st.lists(st.sampled_from((*WORKERS, "nobody")), min_size=1, max_size=4))
    def undrain(self, who: bool, workers: list[str]) -> None:
        tenant = self._tenant(who, "undrain")
        assert finished(tenant.queue.undrain(workers)) == tenant.model.undrain(workers)

    @rule(who=st.booleans(), paused=st.booleans())
    def pause_or_resume(self, who: bool, paused: bool) -> None:
        tenant = self._tenant(who, "pause")
        tenant.model.pause(paused)
        finished(tenant.queue.pause() if paused else tenant.queue.resume())

    @rule(who=st.booleans(), limit=st.sampled_from((1, 1000)))
    def purge(self, who: bool, limit: int) -> None:
        tenant = self._tenant(who, "purge")
        assert finished(tenant.queue.purge(limit)) == tenant.model.purge(limit)

    @rule(who=st.booleans(), dropped=st.integers(-1, 4))
    def redefine(self, who: bool, dropped: int) -> None:
        """Take one level out of the queue (its tasks have nowhere to return to), or put all of them back."""
        tenant = self._tenant(who, "define")
        config = without_level(tenant.first_config, dropped)
        try:
            tenant.model.define(config)
        except ConfigConflict:
            with pytest.raises(ConfigConflict):
                finished(tenant.queue.define(config))
        else:
            assert finished(tenant.queue.define(config)) == config

    @rule(step_us=st.sampled_from((1, 250_000, US, 3 * US, 8 * US, 17 * US, 30 * US, 61 * US, 100 * US, 1000 * US)))
    def let_time_pass(self, step_us: int) -> None:
        self._pass_time(step_us)

    @rule(hours=st.sampled_from((0.5, 1.0, 24.0, 24.0 * 31)))
    def let_hours_pass(self, hours: float) -> None:
        self._pass_time(round(hours * 3600 * US))

    @rule(which=st.integers(0, 9))
    def let_time_pass_to_the_next_deadline(self, which: int) -> None:
        """Exactly to where a lease ends or a task is due: the instants at which off-by-one errors live."""
        model = self.tenants[which % 2].model
        ends = sorted({task.lease_us or task.due_us or 0 for task in model.tasks.values()} - {0})
        ends = [end_us for end_us in ends if end_us > model.now_us]
        self._pass_time(ends[which // 2 % len(ends)] - model.now_us if ends else 0)

    # ── what holds after every step ──────────────────────────────────────────────────────────────────

    @invariant()
    def redis_and_model_agree(self) -> None:
        type(self).steps += self.step >= 0
        self.step += 1
        raw = self.client.execute_command("EVALSHA", self.snapshot_sha, 0)
        observed = observe(wire.unpack(raw), self.tenants)
        for tenant, seen in zip(self.tenants, observed, strict=True):
            expected = tenant.model.view()
            if {name: seen[name] for name in expected} != expected:
                raise AssertionError(f"after {self.verb}, {tenant.name}:\n" + "\n".join(differences(expected, seen)))
            self._check_history(tenant, seen["tasks"])
            for capset in tenant.model.wake_due:
                assert seen["wake"].get(capset), f"nobody is woken for {capset!r} after {self.verb}"
            assert max(seen["wake"].values(), default=0) <= tenant.model.most_workers
            if self.step % self.full_check_every == 0:
                self._check_figures(tenant)
                self._check_events(tenant)

    def _check_history(self, tenant: Tenant, tasks: dict[str, dict[str, Any]]) -> None:
        """Judges Redis by its own past, without the model: a mistake that both share would show here."""
        for task_id, task in tasks.items():
            state, token = tenant.last_seen.get(task_id, ("", 0))
            assert task["token"] >= token, f"the token of {task_id} fell from {token} to {task['token']}"
            if state and TaskState(state).is_terminal and task["state"] != state:
                revived = (state, task["state"], self.verb) == ("dead_letter", "queued", "replay")
                assert revived, f"{self.verb} turned {task_id} from {state} into {task['state']}"
        gone = {task_id: state for task_id, (state, _) in tenant.last_seen.items() if task_id not in tasks}
        for task_id, state in gone.items():
            by_purge = self.verb == "purge" and TaskState(state).is_terminal
            ended = self.verb in ("settle", "settle_and_claim", "cancel", "claim", "reclaim")
            assert by_purge or (ended and tenant.model.config.result_retention_s == 0), f"{task_id} ({state}) is lost"
            tenant.settled = Counter({lease: n for lease, n in tenant.settled.items() if lease[0] != task_id})
        assert max(tenant.settled.values(), default=0) <= 1, "a lease was settled twice"
        tenant.last_seen = {task_id: (task["state"], task["token"]) for task_id, task in tasks.items()}

    def _check_figures(self, tenant: Tenant) -> None:
        model, view = tenant.model, tenant.model.view()
        stats = finished(tenant.inspector.stats())
        waiting = [task for task in model.tasks.values() if task.state is TaskState.QUEUED]
        for name in model.config.level_names():
            places = [task.place_us for task in waiting if task.effective_level == name]
            assert stats.levels[name].depth == len(places)
            oldest_age_s = (model.now_us - min(places)) / US if places else 0.0
            assert stats.levels[name].oldest_age_s == oldest_age_s
        assert (stats.executing, stats.delayed) == (len(view["leases"]), len(view["delayed"]))
        assert (stats.dead_letter, stats.finished) == (len(view["dead"]), len(view["finished"]))
        states = Counter(record["state"] for record in view["records"].values())
        figures = stats.workers
        assert (figures.active, figures.draining, figures.dead) == (
            states["active"],
            states["draining"],
            states["dead"],
        )
        assert figures.used_capacity == sum(r["load"] for r in view["records"].values() if r["state"] != "dead")
        assert stats.paused == model.paused
        assert Counter(stats.counters) == +model.counters
        assert stats.completed_last_minute == model.ended_last_minute(well=True)
        assert stats.failed_last_minute == model.ended_last_minute(well=False)
        if model.tasks:
            task_id = min(model.tasks, key=lambda one: (one in tenant.last_seen, hash((one, self.step))))
            low, high = model.position(task_id)
            assert low <= finished(tenant.inspector.position(task_id)) <= high

    def _check_events(self, tenant: Tenant) -> None:
        """Every transition is told once, in order."""
        if tenant.model.config.events_max == 0:
            return
        key = f"{tenant.queue.keys.prefix}events"
        entries = self.client.execute_command("XRANGE", key, tenant.last_event_id, "+")
        for entry_id, fields in entries:
            packed = fields[b"rows"] if isinstance(fields, dict) else fields[1]
            tenant.last_event_id = f"({entry_id.decode()}"
            told = [(task_id, kind) for task_id, kind, *_ in wire.unpack(packed)]
            expected = tenant.model.events[tenant.events_seen : tenant.events_seen + len(told)]
            assert told == expected
            tenant.events_seen += len(told)
        assert tenant.events_seen == len(tenant.model.events)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _tenant(self, who: bool, verb: str) -> Tenant:
        self.verb = verb
        return self.tenants[who]

    def _pass_time(self, step_us: int) -> None:
        self.verb = "the clock"
        self.server.clock.advance_us(step_us)
        for tenant in self.tenants:
            tenant.model.now_us = self.server.clock.now_us

    def _enqueue(self, tenant: Tenant, tasks: list[NewTask]) -> None:
        expected = tenant.model.enqueue(tasks)
        results = finished(tenant.queue.enqueue(tasks))
        assert [(result.task_id, result.duplicate) for result in results] == expected
        tenant.sent += tasks

    def _claim(self, tenant: Tenant, worker: str, want: int, dice: int) -> None:
        *randoms, jitter = self.random.numbers = _random_numbers(dice, want + 1)
        repair_limit = (200, 2, 1)[dice % 3]
        number = tenant.claim_numbers[worker]
        expected = tenant.model.claim(worker, want, number, randoms, jitter, repair_limit)
        reply = finished(tenant.queue.claim(worker, want, number=number, repair_limit=repair_limit))
        self._check_claimed(tenant, expected, reply)

    def _check_claimed(self, tenant: Tenant, expected: Any, reply: wire.ClaimReply) -> None:
        assert reply.tasks == expected.tasks
        assert (reply.status, reply.next_due_in_s) == (expected.status, expected.next_due_in_s)
        assert sorted(reply.capsets) == sorted(expected.capsets)
        tenant.past_leases += [(task.task_id, task.token) for task in reply.tasks]

    def _settle(self, tenant: Tenant, settlements: list[Settlement], dice: int) -> None:
        self.random.numbers = _random_numbers(dice, 1)
        expected = tenant.model.settle(settlements, self.random.numbers[0])
        self._check_settled(tenant, settlements, expected, finished(tenant.queue.settle(settlements)))

    def _check_settled(
        self,
        tenant: Tenant,
        settlements: Sequence[Settlement],
        expected: list[set[SettleStatus]],
        statuses: list[SettleStatus],
    ) -> None:
        assert len(statuses) == len(settlements)
        for settlement, right, status in zip(settlements, expected, statuses, strict=True):
            assert status in right, f"{settlement} was answered {status}, not {right}"
            if status is SettleStatus.SETTLED:
                tenant.settled[settlement.task_id, settlement.token] += 1
        tenant.past_settlements += settlements

    def _settlement(self, tenant: Tenant, kind: str, pick: int, outcome: Outcome, after_s: float | None) -> Settlement:
        if outcome is Outcome.SNOOZED:
            after_s = after_s or 0.0
        elif outcome is not Outcome.RETRY:
            after_s = None
        body = "[1]" if outcome is Outcome.COMPLETED else PROBLEM
        if kind == "again" and tenant.past_settlements:
            return tenant.past_settlements[-1 - pick % min(6, len(tenant.past_settlements))]
        tasks = list(tenant.model.tasks.values()) if kind == "any" else tenant.model.leases()
        if kind == "unknown" or not tasks:
            return Settlement(UNKNOWN_ID, 1, outcome, body, after_s)
        task = tasks[pick % len(tasks)]
        token = task.token
        if kind == "stale":
            token -= 1 + pick % 2
        elif kind == "ahead":
            token += 1
        elif kind == "swapped":
            token = tasks[(pick + 1) % len(tasks)].token
        return Settlement(task.task_id, token, outcome, body, after_s)

    def _heartbeat(
        self,
        tenant: Tenant,
        worker: str,
        *,
        status: Any = "active",
        capabilities: str = "",
        held: Sequence[tuple[str, int]] = (),
    ) -> None:
        expected = tenant.model.heartbeat(worker, status=status, capacity=5, capabilities=capabilities, held=held)
        reply = finished(
            tenant.queue.heartbeat(worker, status=status, capacity=5, capabilities=capabilities, held=held)
        )
        assert (reply.draining, reply.lost, reply.cancelled) == expected

    def _any_ids(self, tenant: Tenant, picks: list[int]) -> list[str]:
        """Ids in any state, some of tasks that are gone, and one that never was."""
        tasks: list[ModelTask] = list(tenant.model.tasks.values())
        ids = [task.task_id for task in tasks] + [task.task_id for task in tenant.sent[:2]] + [UNKNOWN_ID]
        return [ids[pick % len(ids)] for pick in picks]


def _random_numbers(dice: int, count: int) -> list[float]:
    source = random.Random(dice)
    return [source.choice((0.0, 0.999999, source.random())) for _ in range(count)]


def without_level(config: QueueConfig, index: int) -> QueueConfig:
    """``config`` less one level and the promotions from and to it; all of it for -1."""
    if index < 0:
        return config
    gone = config.levels[index % len(config.levels)].name
    return msgspec.structs.replace(
        config,
        levels=tuple(level for level in config.levels if level.name != gone),
        default_level="" if config.default_level == gone else config.default_level,
        promotions=tuple(rule for rule in config.promotion_rules if gone not in (rule.source, rule.target)),
    )


# ── reading Redis ────────────────────────────────────────────────────────────────────────────────────────

ZSETS = {"delayed", "leases", "dead", "finished", "workers", "dead_workers"}
NOT_COMPARED = {"stats": "hash", "events": "stream", "latencies": "list"}
"""Keys whose content is checked through what they are for: figures and events."""


def observe(entries: list[Any], tenants: list[Tenant]) -> list[dict[str, Any]]:
    """The database as the model sees it. A key that belongs to no tenant, or of the wrong type, is an error."""
    views = []
    by_prefix = {}
    for tenant in tenants:
        view: dict[str, Any] = {name: {} for name in ("ready", "tasks", "records", "idempotency", "wake", *ZSETS)}
        views.append(view | {"capsets": set(), "paused": False})
        by_prefix[tenant.queue.keys.prefix] = views[-1]
    global_names = {queue_names_key(tenant.name) for tenant in tenants}
    for key, kind, value in entries:
        end = key.find("}:") + 2
        view = by_prefix.get(key[:end], {})
        if view:
            _place(view, key[end:], kind, value)
        else:
            assert key in global_names, f"a key outside of every queue: {key}"
            assert (kind, value) == ("set", [QUEUE])
    return views


def _place(view: dict[str, Any], name: str, kind: str, value: Any) -> None:
    head, _, rest = name.partition(":")
    if kind == "zset" and head == "ready":
        view["ready"][tuple(rest.split(":"))] = _scores(value)
    elif kind == "zset" and name in ZSETS:
        view[name] = _scores(value)
    elif kind == "hash" and head == "task":
        view["tasks"][rest] = _task_view(_fields(value))
    elif kind == "hash" and head == "worker":
        view["records"][rest] = _worker_view(_fields(value))
    elif kind == "string" and head == "idempotency":
        view["idempotency"][rest] = tuple(value)
    elif kind == "list" and head == "wake":
        view["wake"][rest] = value
    elif kind == "set" and name == "capsets":
        view["capsets"] = set(value)
    elif kind == "hash" and name == "config":
        view["paused"] = _fields(value).get("paused") == "1"
    else:
        known = {"wake-worker": "list", "throughput": "hash"}.get(head) if rest else NOT_COMPARED.get(name)
        assert kind == known, f"an unknown key {name} of type {kind}"


def _scores(flat: list[str]) -> dict[str, int]:
    return dict(zip(flat[::2], map(int, flat[1::2]), strict=True))


def _fields(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _task_view(fields: dict[str, Any]) -> dict[str, Any]:
    executing, queued = fields["state"] == "executing", fields["state"] == "queued"
    return {
        "state": fields["state"],
        "message": fields["msg"],
        "level": fields["level"],
        "effective_level": fields.get("promoted", fields["level"]) if executing or queued else None,
        "capset": fields.get("caps", ""),
        "max_retries": int(fields["max_retries"]),
        "timeout_us": int(fields["timeout_us"]),
        "created_us": int(fields["created_us"]),
        "place_us": int(fields.get("place_us", fields["created_us"])),
        "token": int(fields.get("token", 0)),
        "retries": int(fields.get("retries", 0)),
        "crashes": int(fields.get("crashes", 0)),
        "worker": fields["worker"] if executing else None,
        "started_us": int(fields["started_us"]) if executing else None,
        "cancel": executing and "cancel" in fields,
        "reason": fields.get("reason"),
        "attempts": [(number, reason) for number, _, _, _, reason, _ in fields.get("history", ())],
    }


def _worker_view(fields: dict[str, str]) -> dict[str, Any]:
    load = int(fields["load"])
    return {
        "state": fields["state"],
        "load": load,
        "idle_since": None if load else int(fields["idle_since_us"]),
        "parked": "parked" in fields,
        "capabilities": fields["caps"],
        "capacity": int(fields["capacity"]),
    }


def differences(expected: Any, seen: Any, path: str = "") -> Iterator[str]:
    """Where two views differ, one line each."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key in sorted(expected.keys() | (seen.keys() if path else set()), key=str):
            yield from differences(expected.get(key), seen.get(key), f"{path}/{key}")
    elif expected != seen:
        yield f"{path}: Redis has {seen!r}, the model {expected!r}"


# ── the tests ────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def machine_on(server: RedisServer) -> Iterator[type[QueueMachine]]:
    """The machine, bound to ``server`` (whose clock is frozen and whose database is the machine's alone)."""
    with server.client() as client:
        members = {
            "server": server,
            "client": client,
            "transport": SyncTransport(client),
            "snapshot_sha": client.script_load(SNAPSHOT),
            "runs": itertools.count(1),
            "steps": 0,
        }
        yield types.new_class("BoundQueueMachine", (QueueMachine,), exec_body=lambda body: body.update(members))


def run_machine(
    machine: type[QueueMachine], *, examples: int, steps: int, seed: int, phases: Sequence[Phase] | None = None
) -> None:
    """Run ``examples`` histories of ``steps`` steps each; raises what the first failing one raises."""
    hypothesis.seed(seed)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps + 1,  # hypothesis counts the initialize rule as well
            phases=phases or (Phase.generate, Phase.shrink),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def chosen_seed() -> int:
    return int(os.environ.get("HEADRACE_STATE_MACHINE_SEED") or random.SystemRandom().randrange(2**32))


@pytest.fixture(scope="module")
def private_redis() -> Iterator[RedisServer]:
    """A server of the machine's own: it looks at every key there is."""
    with RedisServer(fake_clock=True) as server:
        server.clock.freeze()
        yield server


def _run_and_count(server: RedisServer, at_least: int, examples: int, say: Callable[[str], None]) -> None:
    seed = chosen_seed()
    started_s = time.monotonic()
    with machine_on(server) as machine:
        try:
            run_machine(machine, examples=examples, steps=100, seed=seed)
        finally:
            say(f"{machine.steps:,} steps in {time.monotonic() - started_s:.1f} s, HEADRACE_STATE_MACHINE_SEED={seed}")
        assert machine.steps >= at_least


def test_state_machine_fast(private_redis: RedisServer) -> None:
    _run_and_count(private_redis, at_least=3_000, examples=32, say=print)


@pytest.mark.slow
def test_state_machine_50_000_steps(private_redis: RedisServer) -> None:
    _run_and_count(private_redis, at_least=50_000, examples=510, say=print)
