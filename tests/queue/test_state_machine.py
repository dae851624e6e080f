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
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

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
from tests.queue.ground import Ground, VerbRunner, ground_of
from tests.queue.model_queue import US, ModelQueue, ModelTask
from tests.support.topology import Installation, Topology, installed

QUEUE = "work"
WORKERS = ("w1", "w2", "w3")
CAPSETS = ("", "gpu", "eu", "eu,gpu")
UNKNOWN_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"
PROBLEM = '{"type":"ValueError","message":"no"}'

# What a new task may be like: level (0 names none), delay, capabilities, idempotency key, retries, timeout.
SPEC_CHOICES: tuple[tuple[Any, ...], ...] = (
    (0, 1, 2, 3, 4, 5),
    (0.0, 0.0, 0.0, 0.0, 0.5, 3.0, 40.0),
    ("", "", "gpu", "eu", "eu,gpu"),
    (*[""] * 12, "k1", "k2", "k3"),
    (None, None, None, 0, 1),
    (None, None, None, 4.0, 90.0),
)

# Durations are whole seconds or binary fractions of them, so that floats stay exact on both sides.
CONFIGS = (
    QueueConfig(
        QUEUE,
        levels=(Level("high", 1.0, 2, 16.0), Level("medium", 1.0, 1, 64.0), Level("low", 1.0, 0, 600.0)),
        promotions=(Promotion("low", "medium", 3.0, 2), Promotion("medium", "high", 17.0, 1)),
        retry=RetryPolicy(base_s=1.0, max_s=4.0),
        result_retention_s=120.0,
        dead_letter_retention_s=7200.0,
        idempotency_window_s=7200.0,
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
        promotions=(Promotion("later", "now", 1.0, 3),),
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
        promotions=(Promotion("low", "high", 3.0, 100),),
        retry=RetryPolicy(base_s=0.0, max_s=0.0),
        result_retention_s=0.0,
        dead_letter_retention_s=3600.0,
        max_crashes=2,  # a suspect after its first crash: several of them at once are common here
        events_max=0,
    ),
)

# Reads every key that matches a pattern, in one call. A key of the wrong type fails here; a key with a name
# that is not known gets no value and fails in `observe`.
SNAPSHOT = """
local sorted = {ready = 1, delayed = 1, leases = 1, dead = 1, finished = 1, workers = 1, dead_workers = 1}
local hashes = {task = 1, worker = 1, config = 1}
local sets = {capsets = 1, queues = 1}
local entries = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local head, value = string.match(key, '}:([^:]*)'), 0
  if sorted[head] then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif sets[head] then value = redis.call('SMEMBERS', key)
  elseif head == 'wake' then value = redis.call('LLEN', key)
  elseif head == 'idempotency' then value = {redis.call('GET', key), redis.call('PEXPIRETIME', key)}
  elseif hashes[head] then
    value = redis.call('HGETALL', key)
    for i = 1, #value, 2 do
      if value[i] == 'history' then value[i + 1] = cmsgpack.unpack(value[i + 1])
      elseif head == 'config' and value[i] ~= 'paused' then value[i + 1] = ''
      elseif string.sub(value[i], 1, 8) == 'claimed:' then value[i + 1] = '' end
    end
  end
  entries[#entries + 1] = {key, value}
end
return cmsgpack.pack(entries)
"""


# ── driving the queue ────────────────────────────────────────────────────────────────────────────────────


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

    def __init__(self, name: str, transport: VerbRunner, config: QueueConfig, now_us: int) -> None:
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


STEPS: dict[str, st.SearchStrategy[dict[str, Any]]] = {}
"""What the machine can do, and with which arguments."""


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    def register(method: Any) -> Any:
        STEPS[method.__name__] = st.fixed_dictionaries(arguments)
        return method

    return register


def steps_from(**weights: int) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Steps in these proportions."""
    deck = [name for name, weight in weights.items() for _ in range(weight)]
    return st.sampled_from(deck).flatmap(lambda name: st.tuples(st.just(name), STEPS[name]))


class QueueMachine(RuleBasedStateMachine):
    """Two tenants on one ground, which `machine_on` sets in a subclass."""

    ground: ClassVar[Ground]
    snapshot_sha: ClassVar[str]
    runs: ClassVar[Iterator[int]]
    steps: ClassVar[int]
    answers: ClassVar[Counter[str]]
    full_check_every: ClassVar[int] = 8

    def __init__(self) -> None:
        super().__init__()
        self.run_number = next(self.runs)
        self.tenants: list[Tenant] = []
        self.serial = itertools.count(1)
        self.step = -1  # the initialize rule is not counted
        self.random = ScriptedRandom()
        self.verb = "define"
        self.touched: Tenant | None = None
        queue_module.random = self.random  # type: ignore[assignment, attr-defined]

    def teardown(self) -> None:
        queue_module.random = random  # type: ignore[attr-defined]
        for tenant in self.tenants:
            model = tenant.model
            self.answers.update(f"event {kind}" for _, kind in model.events)
            self.answers.update(f"count {name}" for name in +model.counters)
            retries = (name.split(":")[2] for name in +model.counters if name.startswith("retrying:"))
            self.answers.update(f"retry after {reason}" for reason in retries)
            self.answers.update(f"reason {task.reason}" for task in model.dead_letters())
        self.ground.clear(f"r{self.run_number}-".encode())

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    @initialize(configs=st.tuples(*[st.integers(0, len(CONFIGS) - 1)] * 2), dice=st.integers(0, 999))
    def define(self, configs: tuple[int, int], dice: int) -> None:
        # Every history begins at a full minute, so that the same steps always meet the same fractions of time.
        self.ground.clock.advance_us(-self.ground.clock.now_us % (60 * US))
        now_us = self.ground.clock.now_us
        for letter, number in zip("ab", configs, strict=True):
            name = f"r{self.run_number}-{letter}"
            self.tenants.append(Tenant(name, self.ground.transport, CONFIGS[number], now_us))
        for tenant in self.tenants:  # most histories are about queues that have workers
            for worker in WORKERS[:2]:
                self._heartbeat(tenant, worker, capabilities="gpu")
            self._make_work(tenant, dice)

    @step(
        who=st.booleans(),
        specs=st.lists(st.tuples(*map(st.sampled_from, SPEC_CHOICES)), min_size=1, max_size=5),
        backwards=st.booleans(),
    )
    def enqueue(self, who: bool, specs: list[Any], backwards: bool) -> None:
        tenant = self._tenant(who, "enqueue")
        tasks = self._new_tasks(tenant, specs)
        # Ids that do not rise with the order of arrival: ties are broken by the id, not by who came first.
        self._enqueue(tenant, tasks[::-1] if backwards else tasks)

    @step(who=st.booleans(), picks=st.lists(st.integers(0, 99), min_size=1, max_size=4), other=st.booleans())
    def enqueue_again(self, who: bool, picks: list[int], other: bool) -> None:
        """The same ids once more, because an answer was lost; or those that the other tenant has sent."""
        tenant = self._tenant(who, "enqueue")
        known = (self.tenants[not who] if other else tenant).sent
        levels = tenant.model.config.level_names()
        tasks = [known[-1 - pick % len(known)] for pick in picks] if known else []
        tasks = [task if task.level in levels else msgspec.structs.replace(task, level="") for task in tasks]
        self._enqueue(tenant, tasks)

    @step(who=st.booleans(), worker=st.sampled_from(WORKERS), want=st.integers(0, 5), dice=st.integers(0, 999))
    def claim(self, who: bool, worker: str, want: int, dice: int) -> None:
        tenant = self._tenant(who, "claim")
        if dice % 3:
            self._make_willing(tenant, worker)
            self._make_work(tenant, dice)
        tenant.claim_numbers[worker] += 1
        self._claim(tenant, worker, want, dice)

    @step(who=st.booleans(), worker=st.sampled_from(WORKERS), want=st.integers(0, 5), dice=st.integers(0, 999))
    def claim_again(self, who: bool, worker: str, want: int, dice: int) -> None:
        """The number of the last claim once more, because its answer was lost."""
        self._claim(self._tenant(who, "claim"), worker, want, dice)

    @step(
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
        if not tenant.model.leases():
            self._make_willing(tenant, WORKERS[0])
            self._make_work(tenant, dice)
            tenant.claim_numbers[WORKERS[0]] += 1
            self._claim(tenant, WORKERS[0], 3, dice)
        settlements = [self._settlement(tenant, *row) for row in rows]
        self._settle(tenant, settlements, dice)

    @step(
        who=st.booleans(),
        worker=st.sampled_from(WORKERS),
        want=st.integers(1, 3),
        outcomes=st.lists(st.sampled_from(Outcome), min_size=1, max_size=3),
        dice=st.integers(0, 999),
    )
    def work(self, who: bool, worker: str, want: int, outcomes: list[Outcome], dice: int) -> None:
        """What a busy worker does all day: settle everything it holds, and the next tasks please."""
        tenant = self._tenant(who, "settle_and_claim")
        self._make_willing(tenant, worker)
        self._make_work(tenant, dice)
        tenant.claim_numbers[worker] += 1
        held = [task for task in tenant.model.leases() if task.worker == worker]
        done = [
            Settlement(task.task_id, task.token, outcome, PROBLEM, 2.0 if outcome is Outcome.SNOOZED else None)
            for task, outcome in zip(held, itertools.cycle(outcomes), strict=False)
        ]
        settle_random, *randoms, jitter = self.random.numbers = _random_numbers(dice, want + 2)
        number = tenant.claim_numbers[worker]
        expected_statuses = tenant.model.settle(done, settle_random)
        expected = tenant.model.claim(worker, want, number, randoms, jitter, 200)
        statuses, reply = finished(tenant.queue.settle_and_claim(done, worker, want, number=number))
        self._check_settled(tenant, done, expected_statuses, statuses)
        self._check_claimed(tenant, expected, reply)

    @step(
        who=st.booleans(),
        worker=st.sampled_from(WORKERS),
        status=st.sampled_from(("active", "active", "active", "active", "draining", "stopped")),
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

    @step(
        who=st.booleans(),
        verb=st.sampled_from(("promote", "forward", "reclaim", "promote", "purge")),
        limit=st.sampled_from((1000, 2, 1)),
        dice=st.integers(0, 999),
    )
    def keep_healthy(self, who: bool, verb: str, limit: int, dice: int) -> None:
        """What the operator does; claims repair in passing as well."""
        tenant = self._tenant(who, verb)
        if verb == "forward":
            assert finished(tenant.queue.forward(limit)) == tenant.model.forward(limit)
        elif verb == "reclaim":
            self._reclaim(tenant, limit, dice)
        elif verb == "promote":
            force = dice % 2 == 1
            assert finished(tenant.queue.promote(force=force)) == tenant.model.promote(force=force)
        else:
            self._purge(tenant, limit)

    # The next three are sequences that chance would put together too rarely.

    @step(
        who=st.booleans(),
        worker=st.sampled_from(WORKERS),
        limit=st.sampled_from((1000, 1)),
        dice=st.integers(0, 999),
    )
    def fall_silent(self, who: bool, worker: str, limit: int, dice: int) -> None:
        """No heartbeat from a worker for so long that it is declared dead, perhaps with leases still open."""
        model = self.tenants[who].model
        if worker in model.workers:
            dead_us = model.workers[worker].heartbeat_us + round(model.config.worker_dead_after_s * US)
            self._pass_time(max(0, dead_us - model.now_us))
        self._reclaim(self._tenant(who, "reclaim"), limit, dice)

    @step(who=st.booleans(), wait_s=st.sampled_from((3, 18)))
    def promote_after_a_wait(self, who: bool, wait_s: int) -> None:
        self._pass_time(wait_s * US)
        tenant = self._tenant(who, "promote")
        assert finished(tenant.queue.promote(force=True)) == tenant.model.promote(force=True)

    @step(who=st.booleans(), hours=st.sampled_from((1, 3)), limit=st.sampled_from((1000, 1)))
    def clean_up_much_later(self, who: bool, hours: int, limit: int) -> None:
        self._pass_time(hours * 3600 * US)
        self._purge(self._tenant(who, "purge"), limit)

    @step(who=st.booleans(), picks=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def cancel(self, who: bool, picks: list[int]) -> None:
        tenant = self._tenant(who, "cancel")
        ids = self._any_ids(tenant, picks)
        self._check_answers("cancel", finished(tenant.queue.cancel(ids)), tenant.model.cancel(ids))

    @step(who=st.booleans(), picks=st.lists(st.integers(0, 99), max_size=3), limit=st.integers(1, 3))
    def replay(self, who: bool, picks: list[int], limit: int) -> None:
        """Dead letters and others by id; without any id, the oldest dead letters."""
        tenant = self._tenant(who, "replay")
        dead = [task.task_id for task in tenant.model.dead_letters()]
        ids = [dead[pick % len(dead)] if dead and pick % 2 else self._any_ids(tenant, [pick])[0] for pick in picks]
        replayed, refused = finished(tenant.queue.replay(ids, limit=limit))
        assert (replayed, refused) == tenant.model.replay(ids, limit)
        self.answers["replay refused"] += len(refused)

    @step(
        who=st.booleans(),
        workers=st.lists(st.sampled_from((*WORKERS, "nobody")), min_size=1, max_size=3),
        action=st.sampled_from(("undrain", "drain", "force")),
        idle_s=st.sampled_from((0.0, 5.0, 120.0)),
    )
    def steer_workers(self, who: bool, workers: list[str], action: str, idle_s: float) -> None:
        tenant = self._tenant(who, action)
        if action == "undrain":
            answers, expected = finished(tenant.queue.undrain(workers)), tenant.model.undrain(workers)
        else:
            force = action == "force"
            answers = finished(tenant.queue.drain(workers, idle_s=idle_s, force=force))
            expected = tenant.model.drain(workers, idle_us=round(idle_s * US), force=force)
        self._check_answers("undrain" if action == "undrain" else "drain", answers, expected)

    @step(
        who=st.booleans(),
        action=st.sampled_from(("resume", "pause", "redefine", "bad enqueue")),
        pick=st.integers(-2, 4),
    )
    def steer_queue(self, who: bool, action: str, pick: int) -> None:
        tenant = self._tenant(who, action)
        if action == "redefine":
            self._redefine(tenant, without_level(tenant.first_config, pick))
        elif action == "bad enqueue":
            self._enqueue_with_a_bad_one(tenant, good=abs(pick))
        else:
            tenant.model.pause(action == "pause")
            finished(tenant.queue.pause() if action == "pause" else tenant.queue.resume())

    @step(step_us=st.sampled_from((1, 250_000, *(s * US for s in (1, 3, 8, 17, 30, 61, 100, 1000, 3600)))))
    def let_time_pass(self, step_us: int) -> None:
        self._pass_time(step_us)

    @step(which=st.integers(0, 9))
    def let_time_pass_to_the_next_deadline(self, which: int) -> None:
        """Exactly to where a lease ends or a task is due: the instants at which off-by-one errors live."""
        model = self.tenants[which % 2].model
        ends = sorted({task.lease_us or task.due_us or 0 for task in model.tasks.values()})
        ends = [end_us for end_us in ends if end_us > model.now_us]
        self._pass_time(ends[which // 2 % len(ends)] - model.now_us if ends else 0)

    # Hypothesis leaves out some rules in every history. With a rule for each step, most histories would lack one
    # that tasks need to get anywhere; so each rule is a mixture in which tasks are claimed and settled.

    @rule(
        step=steps_from(
            enqueue=3,
            claim=5,
            claim_again=1,
            settle=6,
            work=5,
            heartbeat=2,
            keep_healthy=4,
            fall_silent=2,
            promote_after_a_wait=2,
            clean_up_much_later=1,
            let_time_pass=3,
            let_time_pass_to_the_next_deadline=3,
        )
    )
    def daily_business(self, step: tuple[str, dict[str, Any]]) -> None:
        getattr(self, step[0])(**step[1])

    @rule(
        step=steps_from(
            enqueue=1,
            enqueue_again=2,
            claim=3,
            claim_again=2,
            settle=4,
            work=1,
            heartbeat=2,
            keep_healthy=2,
            fall_silent=2,
            promote_after_a_wait=2,
            clean_up_much_later=1,
            cancel=3,
            replay=3,
            steer_workers=3,
            steer_queue=3,
            let_time_pass_to_the_next_deadline=1,
        )
    )
    def meddling(self, step: tuple[str, dict[str, Any]]) -> None:
        getattr(self, step[0])(**step[1])

    @rule(step=steps_from(**dict.fromkeys(STEPS, 1)))
    def anything(self, step: tuple[str, dict[str, Any]]) -> None:
        getattr(self, step[0])(**step[1])

    # ── what holds after every step ──────────────────────────────────────────────────────────────────

    @invariant()
    def redis_and_model_agree(self) -> None:
        """The queue that was touched is compared as a whole; now and then both are, and the rest of the database."""
        type(self).steps += self.step >= 0
        self.step += 1
        everything = self.step % self.full_check_every == 0
        tenants = self.tenants if everything or self.touched is None else [self.touched]
        pattern = "*" if len(tenants) > 1 else f"{tenants[0].queue.keys.prefix}*"
        entries = [entry for packed in self.ground.ask_all(self.snapshot_sha, pattern) for entry in wire.unpack(packed)]
        for tenant, seen in zip(tenants, observe(entries, tenants), strict=True):
            expected = tenant.model.view()
            if {name: seen[name] for name in expected} != expected:
                raise AssertionError(f"after {self.verb}, {tenant.name}:\n" + "\n".join(differences(expected, seen)))
            self._check_history(tenant, seen["tasks"])
            for capset in tenant.model.wake_due:
                assert seen["wake"].get(capset), f"nobody is woken for {capset!r} after {self.verb}"
            assert max(seen["wake"].values(), default=0) <= tenant.model.most_workers
            if everything:
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
            ended = self.verb in ("settle", "settle_and_claim", "cancel", "claim", "reclaim")  # settle may claim first
            assert by_purge or (ended and tenant.model.config.result_retention_s == 0), f"{task_id} ({state}) is lost"
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
        entries = self.ground.read("XRANGE", key, tenant.last_event_id, "+")
        for entry_id, fields in entries:
            packed = fields[b"rows"] if isinstance(fields, dict) else fields[1]
            tenant.last_event_id = f"({entry_id.decode()}"
            told = [(task_id, kind) for task_id, kind, *_ in wire.event_rows(packed)]
            expected = tenant.model.events[tenant.events_seen : tenant.events_seen + len(told)]
            assert told == expected
            tenant.events_seen += len(told)
        assert tenant.events_seen == len(tenant.model.events)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _tenant(self, who: bool, verb: str) -> Tenant:
        self.verb, self.touched = verb, self.tenants[who]
        return self.touched

    def _pass_time(self, step_us: int) -> None:
        self.verb, self.touched = "the clock", None
        self.ground.clock.advance_us(step_us)
        for tenant in self.tenants:
            tenant.model.now_us = self.ground.clock.now_us

    def _make_willing(self, tenant: Tenant, worker: str) -> None:
        """Most claims should be answered with tasks: the worker is there and may claim, and the queue is not paused."""
        if tenant.model.paused:
            tenant.model.pause(False)
            finished(tenant.queue.resume())
        record = tenant.model.workers.get(worker)
        if record is None or record.state == "dead":
            self._heartbeat(tenant, worker, capabilities="eu,gpu")
        elif record.state == "draining":
            tenant.model.undrain([worker])
            finished(tenant.queue.undrain([worker]))

    def _make_work(self, tenant: Tenant, dice: int) -> None:
        """Most claims should be answered with tasks: some are waiting."""
        if not any(task.state is TaskState.QUEUED for task in tenant.model.tasks.values()):
            source = random.Random(dice)
            specs = [tuple(map(source.choice, SPEC_CHOICES)) for _ in range(source.randint(2, 5))]
            self._enqueue(tenant, self._new_tasks(tenant, specs))

    def _new_tasks(self, tenant: Tenant, specs: Sequence[tuple[Any, ...]]) -> list[NewTask]:
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
        return tasks

    def _reclaim(self, tenant: Tenant, limit: int, dice: int) -> None:
        self.random.numbers = _random_numbers(dice, 1)
        expected = tenant.model.reclaim(limit, self.random.numbers[0])
        assert finished(tenant.queue.reclaim(limit)) == expected

    def _purge(self, tenant: Tenant, limit: int) -> None:
        purged = finished(tenant.queue.purge(limit))
        assert purged == tenant.model.purge(limit)
        for what, count in zip(("finished", "dead", "workers"), purged, strict=True):
            self.answers[f"purge {what}"] += count

    def _redefine(self, tenant: Tenant, config: QueueConfig) -> None:
        """Take one level out of the queue (its tasks have nowhere to return to), or put all of them back."""
        try:
            tenant.model.define(config)
        except ConfigConflict:
            with pytest.raises(ConfigConflict):
                finished(tenant.queue.define(config))
            self.answers["define conflict"] += 1
        else:
            assert finished(tenant.queue.define(config)) == config

    def _enqueue_with_a_bad_one(self, tenant: Tenant, good: int) -> None:
        """All or nothing: one task that is not acceptable keeps the whole batch out."""
        tasks = [NewTask(f"00000000-0000-7000-8000-{next(self.serial):012x}", "{}") for _ in range(good + 1)]
        tasks[good] = msgspec.structs.replace(tasks[good], level="no-such-level")
        with pytest.raises(UnknownLevel) as expected:
            tenant.model.enqueue(tasks)
        with pytest.raises(UnknownLevel) as refused:
            finished(tenant.queue.enqueue(tasks))
        assert str(refused.value) == str(expected.value)

    def _enqueue(self, tenant: Tenant, tasks: list[NewTask]) -> None:
        unknown = {task.task_id for task in tasks} - tenant.model.tasks.keys()
        expected = tenant.model.enqueue(tasks)
        # With a retention of 0 a finished task is forgotten; its id sent again makes a new task with new leases.
        for lease in [lease for lease in tenant.settled if lease[0] in unknown]:
            del tenant.settled[lease]
        results = finished(tenant.queue.enqueue(tasks))
        assert [(result.task_id, result.duplicate) for result in results] == expected
        self.answers["enqueue duplicate"] += sum(result.duplicate for result in results)
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
        self.answers[f"claim {reply.status}"] += 1
        if any((task.task_id, task.token) in tenant.past_leases for task in reply.tasks):
            self.answers["claim again"] += 1
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
            self.answers[f"settle {status}"] += 1
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
        for what in ("draining", "lost", "cancelled"):
            self.answers[f"heartbeat {what}"] += bool(getattr(reply, what))

    def _check_answers(self, verb: str, answers: list[str], expected: list[str]) -> None:
        assert answers == expected
        self.answers.update(f"{verb} {answer}" for answer in answers)

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
NOT_COMPARED = {"stats", "events", "latencies", "throughput", "wake-worker", "sent"}
"""Keys whose content is checked through what they are for: figures, events and the like."""


def observe(entries: list[Any], tenants: list[Tenant]) -> list[dict[str, Any]]:
    """The database as the model sees it. A key that belongs to no tenant, or that nobody knows, is an error."""
    views = []
    by_prefix = {}
    for tenant in tenants:
        view: dict[str, Any] = {name: {} for name in ("ready", "tasks", "records", "idempotency", "wake", *ZSETS)}
        views.append(view | {"capsets": set(), "paused": False})
        by_prefix[tenant.queue.keys.prefix] = views[-1]
    global_names = {queue_names_key(tenant.name) for tenant in tenants}
    for key, value in entries:
        end = key.find("}:") + 2
        if key[:end] in by_prefix:
            _place(by_prefix[key[:end]], key[end:], value)
        else:
            assert key in global_names, f"a key outside of every queue: {key}"
            assert value == [QUEUE]
    return views


def _place(view: dict[str, Any], name: str, value: Any) -> None:
    head, _, rest = name.partition(":")
    if head == "ready":
        view["ready"][tuple(rest.split(":"))] = _scores(value)
    elif head == "task":
        view["tasks"][rest] = _task_view(_fields(value))
    elif head == "worker":
        view["records"][rest] = _worker_view(_fields(value))
    elif head == "idempotency":
        view["idempotency"][rest] = tuple(value)
    elif head == "wake":
        view["wake"][rest] = value
    elif name in ZSETS:
        view[name] = _scores(value)
    elif name == "capsets":
        view["capsets"] = set(value)
    elif name == "config":
        view["paused"] = _fields(value).get("paused") == "1"
    else:
        assert head in NOT_COMPARED, f"an unknown key: {name}"


def _scores(flat: list[str]) -> dict[str, int]:
    return dict(zip(flat[::2], map(int, flat[1::2]), strict=True))


def _fields(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _task_view(fields: dict[str, Any]) -> dict[str, Any]:
    state = fields.get("state", "queued")  # not stored before the first claim
    executing, queued = state == "executing", state == "queued"
    level, max_retries, timeout_us, created_us, capset = fields["spec"].split(" ")
    return {
        "state": state,
        "message": fields["msg"],
        "level": level,
        "effective_level": fields.get("promoted", level) if executing or queued else None,
        "capset": capset,
        "max_retries": int(max_retries),
        "timeout_us": int(timeout_us),
        "created_us": int(created_us),
        "place_us": int(fields.get("place_us", created_us)),
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
def machine_on(servers: Installation) -> Iterator[type[QueueMachine]]:
    """The machine, bound to ``servers`` (whose clock is frozen and whose keys are the machine's alone)."""
    with ground_of(servers) as ground:
        members = {
            "ground": ground,
            "snapshot_sha": ground.load(SNAPSHOT),
            "runs": itertools.count(1),
            "steps": 0,
            "answers": Counter(),
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
            report_multiple_bugs=False,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(scope="module")
def private_redis(topology: Topology) -> Iterator[Installation]:
    """Servers of the machine's own: it looks at every key there is."""
    with installed(topology, frozen=True) as servers:
        yield servers


# Every answer that the verbs document and the machine can bring about. A run that never sees one of them has
# not tested it.
ANSWERS = {
    *(f"event {kind}" for kind in ("enqueued", "claimed", "forwarded", "promoted", "replayed", "retrying", "snoozed")),
    *(f"event {kind}" for kind in ("handed_back", "completed", "failed", "cancelled", "dead_letter")),
    *(f"count {kind}" for kind in ("timeouts", "lease_expired", "dead_workers")),
    *(f"retry after {reason}" for reason in ("error", "timeout", "lease_expired")),
    *(f"claim {status}" for status in ("ok", "paused", "draining", "unregistered", "again")),
    *(f"settle {status}" for status in SettleStatus),
    *(f"cancel {status}" for status in ("cancelled", "cancelling", "completed", "failed", "dead_letter", "not_found")),
    *(f"drain {status}" for status in ("draining", "busy", "not_idle_long_enough", "dead", "not_found")),
    *(f"undrain {status}" for status in ("active", "dead", "not_found")),
    *(f"heartbeat {what}" for what in ("draining", "lost", "cancelled")),
    *(f"purge {what}" for what in ("finished", "dead", "workers")),
    *("enqueue duplicate", "replay refused", "reason poison", "reason max_retries_exceeded", "define conflict"),
}


def _run_and_count(servers: Installation, at_least: int) -> Counter[str]:
    """Run histories of 100 steps until ``at_least`` steps are done; returns how often each answer was seen."""
    seed = int(os.environ.get("HEADRACE_STATE_MACHINE_SEED") or random.SystemRandom().randrange(2**32))
    started_s = time.monotonic()
    with machine_on(servers) as machine:
        try:
            # Hypothesis ends some histories early, so the number of examples alone does not fix that of steps.
            for more in itertools.count():
                run_machine(machine, examples=max(10, (at_least - machine.steps) // 100), steps=100, seed=seed + more)
                if machine.steps >= at_least:
                    break
        finally:
            took_s = time.monotonic() - started_s
            print(f"{machine.steps:,} steps in {took_s:.1f} s; HEADRACE_STATE_MACHINE_SEED={seed}")
        assert machine.steps >= at_least
        return machine.answers


def test_state_machine_fast(private_redis: Installation) -> None:
    _run_and_count(private_redis, at_least=3_000)


# About ten or twenty in a part of a long run, so that one of many parts has none. Tests of the verbs and of the worker
# bring each of them about on purpose.
RARE = {"heartbeat cancelled", "cancel completed", "cancel failed", "claim paused"}
PARTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_state_machine_50_000_steps(private_redis: Installation, topology: Topology, part: int) -> None:
    # In parts, which can run side by side. The scripts are the same on every kind of installation. What differs is the
    # way there, which a tenth of the steps covers; whether every answer has been seen is judged where there are enough.
    is_the_long_run = topology == "standalone"
    answers = _run_and_count(private_redis, at_least=(50_000 if is_the_long_run else 5_000) // PARTS)
    print(", ".join(f"{answer}: {count:,}" for answer, count in sorted(answers.items())))
    if is_the_long_run:
        assert ANSWERS - RARE - (+answers).keys() == set()
