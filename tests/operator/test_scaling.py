"""How many workers: the formula by examples, what holds for whatever figures, and what a burst leads to."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.model.figures import Pulse, WorkerPulse
from headrace.model.states import WorkerState
from headrace_operator.fleet import members
from headrace_operator.load import QueueInView, pool_figures, with_idle_times
from headrace_operator.observation import Flow, PoolHistory
from headrace_operator.resources import WorkerPoolResource
from headrace_operator.scaling import (
    Decision,
    Figures,
    LevelLoad,
    QueueLoad,
    Reason,
    StepLimit,
    decide,
    slot_share,
    slots_per_task,
)
from headrace_operator.workers import pods_at_work
from tests.operator.builders import level_load, pool, queue_load
from tests.operator.builders import pool_figures as figures

# ── the formula ──────────────────────────────────────────────────────────────────────────────────────


def test_a_hundred_tasks_of_ten_seconds_that_may_wait_for_thirty():
    decision = decide(figures(queue_load(level_load(waiting=100, service_s=10, target_s=30))))
    assert (decision.slots, decision.need, decision.replicas, decision.reason) == (25, 5, 5, Reason.BACKLOG)
    assert decision.message == "5 workers are needed: 100 tasks wait, 0 execute"


def test_ten_tasks_per_second_of_two_seconds_each():
    flow = queue_load(level_load(service_s=2), executing=20, arriving_per_s=10, service_s=2)
    decision = decide(figures(flow, replicas=4, busy=4))
    assert (decision.slots, decision.need, decision.replicas, decision.reason) == (20, 4, 4, Reason.STEADY)
    assert decision.message == "4 workers are needed: 0 tasks wait, 20 execute, 10 arrive per second"


def test_a_worker_deals_with_so_many_while_nothing_is_known():
    unmeasured = queue_load(level_load(waiting=70, service_s=None), executing=30, service_s=None)
    assert decide(figures(unmeasured, backlog_per_worker=20.0)).need == 5
    flowing = replace(unmeasured, arriving_per_s=100.0)
    assert decide(figures(flowing, backlog_per_worker=20.0)).need == 5, "a flow of unknown tasks is an unknown load"


@pytest.mark.parametrize("backlog", [5.0, 1.0, 1e-300])
def test_a_task_never_needs_more_than_a_slot(backlog):
    unmeasured = queue_load(level_load(waiting=50, service_s=None), service_s=None)
    assert decide(figures(unmeasured, backlog_per_worker=backlog)).slots == 50


def test_each_level_has_its_own_target_and_its_own_length():
    levels = (level_load("high", waiting=10, service_s=10, target_s=10), level_load("low", waiting=10, target_s=90))
    assert decide(figures(queue_load(*levels))).slots == pytest.approx(10 / 2 + 10 / 10)


def test_queues_are_added_up():
    queues = (queue_load(level_load(waiting=50)), queue_load(level_load(waiting=50), queue="mails"))
    assert decide(figures(*queues)).slots == 25


@pytest.mark.parametrize("queues", [(), (queue_load(),), (queue_load(level_load(), level_load("low")),)])
def test_an_empty_pool_needs_nobody(queues):
    decision = decide(figures(*queues))
    assert (decision.slots, decision.need, decision.replicas, decision.spare) == (0, 0, 0, 0)
    assert decision.reason is Reason.STEADY


def test_thirds_that_make_a_whole_need_no_further_worker():
    thirds = queue_load(level_load(waiting=15, service_s=1, target_s=2))
    assert decide(figures(thirds)).need == 1
    assert decide(figures(*[thirds] * 7, max_replicas=99)).need == 7


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────


def loaded(need: int, **changes: Any) -> Decision:
    """What is decided when exactly so many workers are needed."""
    return decide(figures(queue_load(level_load(waiting=20 * need)), **changes))


@pytest.mark.parametrize(
    ("need", "changes", "replicas", "reason"),
    [
        (3, {}, 3, Reason.BACKLOG),
        (12, {"replicas": 3}, 10, Reason.AT_MAXIMUM),
        (12, {"replicas": 10}, 10, Reason.AT_MAXIMUM),
        (0, {"min_replicas": 2}, 2, Reason.AT_MINIMUM),
        (0, {"min_replicas": 2, "replicas": 2}, 2, Reason.AT_MINIMUM),
        (0, {"min_replicas": 2, "replicas": 5, "idle_s": (5.0,) * 5}, 5, Reason.STEADY),
        (2, {"min_replicas": 2, "replicas": 2}, 2, Reason.STEADY),
        (1, {"replicas": 3, "idle_s": (120.0, 119.9)}, 2, Reason.IDLE),
        (1, {"replicas": 3, "idle_s": (500.0, 400.0, 300.0)}, 1, Reason.IDLE),
        (0, {"replicas": 3, "busy": 2, "idle_s": (500.0,)}, 2, Reason.IDLE),
        (0, {"replicas": 3, "busy": 3}, 3, Reason.STEADY),
        (8, {"replicas": 2, "up_limit": StepLimit(4, 60), "added": 1}, 5, Reason.STEP_LIMITED),
        (8, {"replicas": 2, "up_limit": StepLimit(4, 60), "added": 9}, 2, Reason.STEP_LIMITED),
        (8, {"replicas": 2, "up_limit": StepLimit(6, 60)}, 8, Reason.BACKLOG),
        (0, {"replicas": 3, "idle_s": (500.0,) * 3, "down_limit": StepLimit(1, 60)}, 2, Reason.STEP_LIMITED),
        (0, {"replicas": 12, "idle_s": (0.0,) * 12}, 10, Reason.AT_MAXIMUM),
        (0, {"replicas": 12, "busy": 11}, 11, Reason.AT_MAXIMUM),
        (0, {"fixed_replicas": 4}, 4, Reason.FIXED),
        (0, {"fixed_replicas": 40}, 10, Reason.AT_MAXIMUM),
        (9, {"fixed_replicas": 0, "min_replicas": 2}, 2, Reason.AT_MINIMUM),
    ],
)
def test_how_many_and_why(need, changes, replicas, reason):
    decision = loaded(need, **changes)
    assert (decision.need, decision.replicas, decision.reason) == (need, replicas, reason)


def test_a_bound_that_was_lowered_adds_nobody():
    """More may be busy than there shall be: those of a former revision finish their tasks."""
    assert loaded(20, replicas=12, busy=15).replicas == 12


def test_who_was_not_needed_for_long_is_to_spare():
    assert loaded(1, replicas=5, recent_need=3).spare == 2
    assert loaded(4, replicas=5, recent_need=3).spare == 1
    assert loaded(0, replicas=5, min_replicas=4).spare == 1
    assert loaded(7, replicas=5).spare == 0


# ── whatever the figures ─────────────────────────────────────────────────────────────────────────────

SECONDS = st.floats(0.1, 100)
TASKS = st.one_of(st.integers(0, 500).map(float), st.floats(0, 500))
LEVELS = st.builds(
    LevelLoad,
    level=st.sampled_from(["high", "low"]),
    waiting=TASKS,
    service_s=st.none() | SECONDS,
    target_s=SECONDS,
)
QUEUES = st.builds(
    QueueLoad,
    queue=st.just("orders"),
    levels=st.lists(LEVELS, max_size=3).map(tuple),
    executing=TASKS,
    arriving_per_s=st.just(0.0) | st.floats(0, 50),
    service_s=st.none() | SECONDS,
    target_s=SECONDS,
)
LIMITS = st.none() | st.builds(StepLimit, st.integers(1, 9), SECONDS)


@st.composite
def any_figures(draw: st.DrawFn, *, fixed: st.SearchStrategy[int | None] = st.none()) -> Figures:  # noqa: B008
    least, span = draw(st.integers(0, 5)), draw(st.integers(0, 15))
    replicas = draw(st.integers(0, 25))
    busy = draw(st.integers(0, replicas + 3))
    idle_s = draw(st.lists(st.floats(0, 300), max_size=max(0, replicas - busy)))
    return Figures(
        queues=tuple(draw(st.lists(QUEUES, max_size=3))),
        replicas=replicas,
        busy=busy,
        idle_s=tuple(sorted(idle_s)),
        concurrency=draw(st.integers(1, 20)),
        min_replicas=least,
        max_replicas=least + span,
        idle_seconds=draw(st.sampled_from([0.0, 1.0, 120.0])),
        backlog_per_worker=draw(st.floats(0.5, 200)),
        fixed_replicas=draw(fixed),
        recent_need=draw(st.integers(0, 25)),
        up_limit=draw(LIMITS),
        down_limit=draw(LIMITS),
        added=draw(st.integers(0, 9)),
        removed=draw(st.integers(0, 9)),
    )


FIGURES = any_figures()
FIXED_FIGURES = any_figures(fixed=st.integers(0, 30))


def with_more(found: Figures, tasks: float, queue: int, level: int) -> Figures:
    """The same, when so many more tasks wait there."""
    levels = list(found.queues[queue].levels)
    levels[level] = replace(levels[level], waiting=levels[level].waiting + tasks)
    queues = list(found.queues)
    queues[queue] = replace(queues[queue], levels=tuple(levels))
    return replace(found, queues=tuple(queues))


def places(found: Figures) -> list[tuple[int, int]]:
    return [(queue, level) for queue, load in enumerate(found.queues) for level in range(len(load.levels))]


@given(FIGURES, st.data())
def test_no_task_that_comes_takes_a_worker_away(found, data):
    assume(places(found))
    more = with_more(found, data.draw(TASKS), *data.draw(st.sampled_from(places(found))))
    before, after = decide(found), decide(more)
    assert after.need >= before.need
    assert after.replicas >= before.replicas


@given(FIGURES)
def test_no_busy_worker_has_to_go(found):
    assert decide(found).replicas >= min(found.busy, found.replicas)


@given(FIGURES)
def test_no_worker_has_to_go_that_has_not_been_idle_for_long(found):
    """Unless a bound was lowered; then it has only to be idle."""
    assume(found.replicas <= found.max_replicas)
    may_go = sum(idle_s >= found.idle_seconds for idle_s in found.idle_s)
    assert decide(found).replicas >= found.replicas - may_go


@given(FIGURES)
def test_the_bounds_hold(found):
    replicas = decide(found).replicas
    assert replicas <= max(found.max_replicas, min(found.busy, found.replicas))
    if found.up_limit is None:
        assert replicas >= found.min_replicas


@given(FIGURES)
def test_what_is_needed_is_there_unless_something_is_named_that_stands_against_it(found):
    decision = decide(found)
    if decision.reason not in (Reason.AT_MAXIMUM, Reason.STEP_LIMITED):
        assert decision.replicas >= decision.need
    assert decision.replicas * found.concurrency >= decision.slots * (1 - 1e-6) or decision.room is None


@given(FIXED_FIGURES)
def test_a_fixed_size_is_brought_within_the_bounds_and_nothing_else_matters(found):
    assert found.fixed_replicas is not None
    decision = decide(found)
    assert decision.replicas == min(max(found.fixed_replicas, found.min_replicas), found.max_replicas)
    assert (decision.spare, decision.room) == (0, None)


@given(FIGURES)
def test_step_limits_are_kept(found):
    change = decide(found).replicas - found.replicas
    if found.up_limit is not None:
        assert change <= max(0, found.up_limit.pods - found.added)
    # Who lowers maxReplicas wants it lower now.
    if found.down_limit is not None and found.replicas <= found.max_replicas:
        assert -change <= max(0, found.down_limit.pods - found.removed)


@given(FIGURES | FIXED_FIGURES)
def test_a_decision_can_be_made_again_from_its_record(found):
    decision = decide(found)
    assert decide(found) == decision
    assert decide(msgspec.json.decode(msgspec.json.encode(found), type=Figures)) == decision
    assert decide(msgspec.convert(msgspec.to_builtins(found), Figures)) == decision


@given(FIGURES | FIXED_FIGURES)
def test_every_decision_says_why_in_a_sentence(found):
    decision = decide(found)
    assert decision.message[0].isupper() or decision.message[0].isdigit() or decision.message.startswith("spec.")
    assert "\n" not in decision.message
    assert decision.figures is found


# Few enough tasks that a fraction of one is not lost in the sum of all.
MODEST_LEVELS = st.builds(
    LevelLoad, level=st.just("high"), waiting=st.integers(0, 60), service_s=st.none() | SECONDS, target_s=SECONDS
)
MODEST_QUEUES = st.builds(
    QueueLoad,
    queue=st.just("orders"),
    levels=st.lists(MODEST_LEVELS, min_size=1, max_size=3).map(tuple),
    executing=st.integers(0, 60),
    service_s=SECONDS,
    target_s=SECONDS,
)


@given(any_figures(), st.lists(MODEST_QUEUES, min_size=1, max_size=2))
@example(figures(replicas=1), [queue_load(level_load(waiting=20))])
@example(figures(replicas=0), [queue_load(level_load(waiting=0))])
def test_the_room_that_is_left_is_exactly_what_can_come(found, queues):
    """Before another worker is started or taken back, as long as neither the maximum nor a limit stands against it."""
    found = replace(found, queues=tuple(queues), max_replicas=1_000, up_limit=None, down_limit=None)
    decision = decide(found)
    assert decision.room is not None
    dearest = max(places(found), key=lambda place: slots_per_task(found.queues[place[0]].levels[place[1]], found))
    assert decide(with_more(found, decision.room, *dearest)).taking_tasks == decision.taking_tasks
    assert decide(with_more(found, decision.room + 1, *dearest)).taking_tasks == decision.taking_tasks + 1


@given(FIGURES)
def test_no_room_is_left_where_nothing_could_be_done_about_it(found):
    decision = decide(found)
    if decision.taking_tasks >= found.max_replicas or not places(found):
        assert decision.room is None


def test_what_was_set_aside_is_asked_for_again_even_where_no_pod_can_be_added():
    idle = figures(queue_load(level_load(waiting=0)), replicas=10, max_replicas=10, recent_need=1)
    assert (decide(idle).replicas, decide(idle).taking_tasks, decide(idle).room) == (10, 1, 20)


@given(FIGURES)
def test_only_who_is_not_needed_is_to_spare(found):
    decision = decide(found)
    assert 0 <= decision.spare <= found.replicas
    if decision.spare:
        assert found.replicas - decision.spare >= max(decision.need, found.recent_need, found.min_replicas)


# ── a burst, second by second ────────────────────────────────────────────────────────────────────────

IDLE_S = 5.0


@dataclass
class Pod:
    name: str
    ready_at_s: float
    running: list[float] = field(default_factory=list)
    """When each of its tasks ends."""
    idle_since_s: float = 0.0


@dataclass
class Replay:
    """A queue, a pool and its pods, in time that is only counted.

    Pulses, pods and their records are as the operator finds them, and go through the operator's own code; only Redis,
    Kubernetes and the workers are played.
    """

    tasks: int
    service_s: float
    start_s: float
    resource: WorkerPoolResource
    is_measured: bool
    waiting: int = 0
    claimed: int = 0
    ended: int = 0
    now_s: float = 0.0
    pods: list[Pod] = field(default_factory=list)
    made: int = 0
    begun_at_s: list[float] = field(default_factory=list)
    flow: Flow = field(default_factory=Flow)
    history: PoolHistory = field(default_factory=lambda: PoolHistory(-1_000.0))

    def decisions(self) -> Iterator[Decision]:
        """One per second, each carried out, until everything is done and everybody is gone."""
        for second in range(100_000):
            self._work_until(float(second))
            # The burst comes after the first look, so that it is seen to come.
            if second == 1:
                self.waiting = self.tasks
                self._claim()
            decision = self._decide()
            yield decision
            self._carry_out(decision.replicas)
            if second > 1 and self.ended == self.tasks and not self.pods:
                return
        pytest.fail("it does not end")

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────

    def _work_until(self, until_s: float) -> None:
        """Every task that ends makes way for the next one at that very moment."""
        moments = [end_s for pod in self.pods for end_s in pod.running] + [pod.ready_at_s for pod in self.pods]
        moments = [moment_s for moment_s in moments if self.now_s <= moment_s <= until_s]
        heapq.heapify(moments)
        while moments:
            self.now_s = heapq.heappop(moments)
            for pod in self.pods:
                ends = [end_s for end_s in pod.running if end_s <= self.now_s]
                pod.running = [end_s for end_s in pod.running if end_s > self.now_s]
                self.ended += len(ends)
                if ends and not pod.running:
                    pod.idle_since_s = self.now_s
            for end_s in self._claim():
                if end_s <= until_s:
                    heapq.heappush(moments, end_s)
        self.now_s = until_s

    def _claim(self) -> list[float]:
        ends: list[float] = []
        for pod in self.pods:
            while self.waiting and pod.ready_at_s <= self.now_s and len(pod.running) < self.resource.concurrency:
                self.waiting -= 1
                self.claimed += 1
                self.begun_at_s.append(self.now_s)
                pod.running.append(self.now_s + self.service_s)
                ends.append(pod.running[-1])
        return ends

    # ── the operator ─────────────────────────────────────────────────────────────────────────────────

    def _decide(self) -> Decision:
        workers = tuple(
            WorkerPulse(
                worker=pod.name, state=WorkerState.ACTIVE, load=len(pod.running), capacity=self.resource.concurrency,
                parked=False, host=pod.name, idle_since_s=pod.idle_since_s,
            )
            for pod in self.pods
            if pod.ready_at_s <= self.now_s
        )  # fmt: skip
        runs = self.ended + (10 if self.is_measured else 0)
        pulse = Pulse(
            at_s=self.now_s, paused=False, levels=(("high", self.waiting, None),),
            executing=sum(worker.load for worker in workers), delayed=0, dead_letter=0, workers=workers, workers_dead=0,
            completed_last_minute=0, failed_last_minute=0, promoted=0, forward_at_s=None, reclaim_at_s=None,
            promote_at_s=None, purge_at_s=None, waiting=(("high", "", self.waiting),), claimed=self.claimed,
            service=(("high", runs, self.service_s),) if runs else (),
        )  # fmt: skip
        self.flow.observe(
            waiting=pulse.depth, claimed=pulse.claimed, executing=pulse.executing, runs=runs, now_s=self.now_s
        )
        bodies = [{"metadata": {"name": pod.name, "uid": pod.name}} for pod in self.pods]
        found = members(bodies, pods_at_work([("orders", pulse)]))
        found = with_idle_times(found, {"orders": pulse}, self.history, self.now_s)
        decision = decide(
            pool_figures(
                self.resource, [QueueInView("orders", pulse, self.flow, ())], told=len(self.pods), current=found,
                others=(), history=self.history, now_s=self.now_s,
            )
        )  # fmt: skip
        self.history.needed(decision.need, self.now_s)
        return decision

    def _carry_out(self, replicas: int) -> None:
        idle = sorted((pod for pod in self.pods if not pod.running), key=lambda pod: pod.idle_since_s)
        gone = idle[: max(0, len(self.pods) - replicas)]
        self.pods = [pod for pod in self.pods if pod not in gone]
        while len(self.pods) < replicas:
            ready_at_s = self.now_s + self.start_s
            self.pods.append(Pod(f"pod-{self.made}", ready_at_s, idle_since_s=ready_at_s))
            self.made += 1


def replayed(tasks: int, service_s: float, start_s: float, *, is_measured: bool, **spec: Any) -> Replay:
    resource = pool(**{"concurrency": 5, "maxReplicas": 1000, "idleSeconds": IDLE_S} | spec)
    return Replay(tasks, service_s, start_s, resource, is_measured)


def need_of_the_burst(replay: Replay) -> int:
    """For tasks as long as they turn out to be; or what the rule for the unknown asks for, where that is more."""
    pool = replay.resource
    share = slot_share(replay.service_s, pool.target_drain_seconds)
    if not replay.is_measured:
        share = max(share, min(1.0, pool.concurrency / pool.backlog_per_worker))
    return math.ceil(replay.tasks * share / pool.concurrency - 1e-9)


BURSTS = {
    "tasks": st.integers(1, 300),
    "service_s": st.sampled_from([0.05, 0.4, 1.0, 2.5, 7.0, 10.0, 20.0, 45.0]),
    "start_s": st.sampled_from([0.0, 1.0, 2.5, 8.0, 30.0]),
    "spec": st.fixed_dictionaries(
        {
            "concurrency": st.sampled_from([1, 5, 20]),
            "targetDrainSeconds": st.sampled_from([1, 10, 30]),
            "idleSeconds": st.sampled_from([0, 5]),
        }
    ),
}


@settings(max_examples=50)
@given(**BURSTS, is_measured=st.booleans())
def test_after_a_burst_there_is_at_no_time_a_worker_too_many(tasks, service_s, start_s, spec, is_measured):
    """Neither while its pods start, nor when tasks are measured for the first time, nor when it comes to its end."""
    replay = replayed(tasks, service_s, start_s, is_measured=is_measured, **spec)
    most = need_of_the_burst(replay)
    for decision in replay.decisions():
        assert decision.replicas <= most
    assert (replay.ended, replay.waiting, replay.pods) == (tasks, 0, [])
    assert replay.made <= most, "nobody went who was needed again"


@settings(max_examples=50)
@given(**BURSTS)
def test_the_last_task_of_a_burst_begins_in_time(tasks, service_s, start_s, spec):
    """A slot begins its tasks one length apart, so where the target is no multiple of it the last may be that late."""
    replay = replayed(tasks, service_s, start_s, is_measured=True, **spec)
    for _ in replay.decisions():
        pass
    target_s = replay.resource.target_drain_seconds
    slack_s = 0.0 if math.isclose(target_s / service_s, round(target_s / service_s)) else service_s
    assert max(replay.begun_at_s) - 1.0 <= start_s + target_s + slack_s + 1e-6


def test_a_burst_of_unknown_tasks_gets_what_it_needs_when_they_turn_out_to_be_long():
    """A hundred tasks of a minute, of which nobody knew: the first sight of them says 2 workers, and 14 are needed."""
    replay = replayed(100, 60.0, 2.0, is_measured=False)
    numbers = [decision.replicas for decision in replay.decisions()]
    assert (numbers[1], max(numbers), need_of_the_burst(replay)) == (2, 14, 14)
