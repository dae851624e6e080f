"""Plans for a pool's pods: who is taken back, who drains, who goes, and that nobody goes who works."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.figures import WorkerPulse
from headrace.model.states import WorkerState
from headrace_operator.fleet import DELETION_COST, FIRST_TO_GO, Member, Plan, _rank, going_unborn, members, plan
from headrace_operator.workers import PodWork

IDLE_S = 120.0


def pod(name="p", *, ready=True, phase="Running", node="n1", cost=None, dying=False):
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {}}
    if cost is not None:
        metadata["annotations"] = {DELETION_COST: str(cost)}
    if dying:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": conditions}}


def work(*, load=0, state=WorkerState.ACTIVE, parked=False, queue="q"):
    return PodWork([(queue, WorkerPulse("w", state, load, 5, parked, "p", 0.0))])


def idle(name, idle_s=500.0, **fields):
    return Member(pod(name, **fields), work(), idle_s)


def busy(name, load=1, **fields):
    return Member(pod(name, **fields), work(load=load), 0.0)


def draining(name, idle_s=500.0, load=0, **fields):
    return Member(pod(name, **fields), work(state=WorkerState.DRAINING, load=load), idle_s if not load else 0.0)


def parked(name, idle_s=500.0, **fields):
    return Member(pod(name, ready=False, **fields), work(state=WorkerState.DRAINING, parked=True), idle_s)


def starting(name, idle_s=1.0, phase="Pending", **fields):
    return Member(pod(name, ready=False, phase=phase, **fields), PodWork(), idle_s)


def names(pods):
    return [each.name for each in pods]


# ── up ───────────────────────────────────────────────────────────────────────────────────────────────


def test_from_zero_is_one_number():
    assert plan([], told=0, replicas=10, taking_tasks=10).replicas == 10


def test_enough_is_left_alone():
    found = plan([busy("a"), idle("b")], told=2, replicas=2, taking_tasks=2)
    assert found == type(found)()


def test_workers_that_were_set_aside_are_taken_back_before_and_beside_new_ones():
    pods = [busy("a"), parked("b", idle_s=300), parked("c", idle_s=200), parked("d", cost=FIRST_TO_GO, idle_s=100)]
    found = plan(pods, told=4, replicas=4, taking_tasks=3)
    assert names(found.take_back) == ["c", "b"]
    assert found.replicas is None
    found = plan(pods, told=4, replicas=6, taking_tasks=6)
    assert names(found.take_back) == ["c", "b", "d"]
    assert found.replicas == 6
    assert names(found.unmark) == ["d"]


def test_while_pods_are_going_no_more_are_asked_for():
    # Of two pods where there shall be two, nobody could tell any more whether one of them is being deleted.
    pods = [busy("a"), parked("b", cost=FIRST_TO_GO)]
    found = plan(pods, told=1, replicas=3, taking_tasks=3)
    assert found == Plan(are_going=True)
    assert found.is_unfinished


def test_who_was_chosen_to_go_is_not_taken_back_before_it_is_seen_to_stay():
    pods = [busy("a"), parked("b", cost=FIRST_TO_GO), parked("c")]
    found = plan(pods, told=3, replicas=4, taking_tasks=4)
    assert found.gives_back_marked
    meanwhile = found.until_they_have_gone()
    assert names(meanwhile.take_back) == ["c"]
    assert (meanwhile.unmark, meanwhile.replicas, meanwhile.is_unfinished) == ((), None, True)
    assert not plan([busy("a"), parked("c")], told=2, replicas=2, taking_tasks=2).gives_back_marked


# ── down ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_goes_in_steps():
    steps = plan([busy("a"), idle("b")], told=2, replicas=1, taking_tasks=1, longest_idle_only_s=IDLE_S)
    assert (names(steps.drain), names(steps.mark), steps.replicas) == (["b"], [], None)
    steps = plan([busy("a"), draining("b")], told=2, replicas=1, taking_tasks=1, longest_idle_only_s=IDLE_S)
    assert (steps.drain, steps.mark, steps.replicas) == ((), (), None)
    steps = plan([busy("a"), parked("b")], told=2, replicas=1, taking_tasks=1, longest_idle_only_s=IDLE_S)
    assert (names(steps.mark), steps.replicas) == (["b"], None)
    steps = plan(
        [busy("a"), parked("b", cost=FIRST_TO_GO)], told=2, replicas=1, taking_tasks=1, longest_idle_only_s=IDLE_S
    )
    assert (names(steps.departing), steps.replicas) == (["b"], 1)


def test_while_one_is_going_nothing_else_is_done():
    steps = plan([busy("a"), parked("b", cost=FIRST_TO_GO)], told=1, replicas=0, taking_tasks=0)
    assert steps == Plan(are_going=True)


def test_who_has_been_idle_the_longest_drains_first():
    steps = plan([idle("a", 130), idle("b", 150), idle("c", 140)], told=3, replicas=1, taking_tasks=1)
    assert names(steps.drain) == ["b", "c"]


def test_spare_workers_are_set_aside_and_stay_until_they_have_been_idle_for_long():
    pods = [busy("a"), idle("b", idle_s=1), idle("c", idle_s=2)]
    steps = plan(pods, told=3, replicas=3, taking_tasks=2, longest_idle_only_s=IDLE_S)
    assert (names(steps.drain), steps.replicas) == (["c"], None)
    pods = [busy("a"), idle("b", idle_s=1), parked("c", idle_s=5)]
    steps = plan(pods, told=3, replicas=2, taking_tasks=2, longest_idle_only_s=IDLE_S)
    assert (steps.mark, steps.replicas) == ((), None)


def test_busy_ones_drain_by_force_only():
    pods = [busy("a", load=3), busy("b", load=1), idle("c")]
    assert names(plan(pods, told=3, replicas=0, taking_tasks=0).drain) == ["c"]
    assert names(plan(pods, told=3, replicas=1, taking_tasks=1, force=True).drain) == ["c", "b"]


def test_nobody_goes_while_the_replica_set_would_choose_another_that_may_work():
    # Not ready comes before the deletion cost: a worker that has just begun would go in place of the parked one.
    newly_at_work = Member(pod("new", ready=False), work(load=1), 0.0)
    still_ready = Member(pod("b", cost=FIRST_TO_GO), work(state=WorkerState.DRAINING, parked=True), 500.0)
    steps = plan([newly_at_work, still_ready], told=2, replicas=1, taking_tasks=1)
    assert (steps.departing, steps.replicas) == ((), None)
    steps = plan([newly_at_work, parked("b", cost=FIRST_TO_GO)], told=2, replicas=1, taking_tasks=1)
    assert names(steps.departing) == ["b"]


def test_of_several_that_could_go_as_many_go_as_is_safe():
    newly_at_work = Member(pod("new", ready=False), work(load=1), 0.0)
    still_ready = Member(pod("c", cost=FIRST_TO_GO), work(state=WorkerState.DRAINING, parked=True), 500.0)
    pods = [newly_at_work, parked("b", cost=FIRST_TO_GO), still_ready]
    steps = plan(pods, told=3, replicas=1, taking_tasks=1)
    assert (len(steps.departing), steps.replicas) == (1, 2)


def test_a_pod_that_cannot_start_goes_when_it_has_not_been_needed_for_long():
    pods = [busy("a"), starting("b", idle_s=10)]
    assert plan(pods, told=2, replicas=2, taking_tasks=2, longest_idle_only_s=IDLE_S).mark == ()
    pods = [busy("a"), starting("b", idle_s=130)]
    steps = plan(pods, told=2, replicas=1, taking_tasks=1, longest_idle_only_s=IDLE_S)
    assert (names(steps.mark), steps.drain) == (["b"], ())


def test_pods_that_are_going_or_have_ended_are_not_counted():
    bodies = [pod("a"), pod("b", dying=True), pod("c", phase="Failed"), pod("d", phase="Succeeded")]
    assert names(members(bodies, {})) == ["a"]


def test_a_deleted_pod_whose_worker_may_yet_begin_is_told_from_others():
    bodies = [pod("a"), pod("b", dying=True), pod("c", dying=True), pod("d", dying=True, phase="Failed")]
    assert [each["metadata"]["name"] for each in going_unborn(bodies, {"c": PodWork()})] == ["b"]


def test_a_cost_that_is_no_number_counts_as_none():
    assert Member(pod(cost="much"), PodWork()).deletion_cost == 0


def test_the_order_of_removal_is_that_of_a_replica_set():
    pods = [
        idle("ready"),
        parked("cheap", cost=FIRST_TO_GO),
        parked("unready"),
        starting("pending"),
        starting("unscheduled", node=""),
    ]
    assert names(sorted(pods, key=_rank)) == ["unscheduled", "pending", "cheap", "unready", "ready"]


# ── whatever it is ───────────────────────────────────────────────────────────────────────────────────

KINDS = st.sampled_from((idle, busy, draining, parked, starting))


@st.composite
def fleets(draw):
    found = []
    for index in range(draw(st.integers(0, 8))):
        kind = draw(KINDS)
        fields = {"cost": FIRST_TO_GO} if draw(st.booleans()) else {}
        if kind is not busy:
            fields["idle_s"] = draw(st.floats(0, 300))
        found.append(kind(f"p{index}", **fields))
    return found


@given(fleets(), st.integers(0, 10), st.integers(-2, 2), st.booleans(), st.data())
def test_whoever_goes_holds_nothing_and_the_number_fits(pods, replicas, off_by, force, data):
    told = max(0, len(pods) + off_by)
    taking_tasks = data.draw(st.integers(0, replicas))
    found = plan(pods, told=told, replicas=replicas, taking_tasks=taking_tasks, longest_idle_only_s=IDLE_S, force=force)
    assert all(each.may_be_deleted for each in (*found.departing, *found.mark))
    assert all(each.idle_s >= IDLE_S for each in (*found.departing, *found.mark))
    assert not {each.name for each in found.take_back} & {each.name for each in (*found.departing, *found.mark)}
    assert force or all(each.work.is_idle for each in found.drain)
    if found.replicas is not None and found.replicas < told:
        assert found.replicas >= replicas
        removed = told - found.replicas
        assert removed == len(found.departing)
        # Whoever the ReplicaSet takes for these, in whatever order it takes those that are alike, holds nothing.
        last = _rank(sorted(pods, key=_rank)[removed - 1])
        assert all(each.may_be_deleted for each in pods if _rank(each) <= last)
    if found.replicas is not None and found.replicas > told:
        assert found.replicas == replicas
