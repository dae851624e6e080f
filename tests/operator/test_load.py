"""From pulses and pods to the figures of a decision."""

from __future__ import annotations

import pytest

from headrace.model.figures import Pulse, WorkerPulse
from headrace.model.states import WorkerState
from headrace_operator.fleet import Member, members
from headrace_operator.load import DELAYED, QueueInView, Sibling, pool_figures, sibling, start_time_s, with_idle_times
from headrace_operator.observation import Flow, PoolHistory
from headrace_operator.workers import PodWork, pods_at_work
from tests.operator import builders

NOW_S = 1000.0


def pulse(*, waiting=(), service=(), workers=(), paused=False, due_soon=0, executing=0):
    levels = tuple((name, sum(n for level, _, n in waiting if level == name), None) for name in ("high", "low"))
    return Pulse(
        at_s=5000.0, paused=paused, levels=levels, executing=executing, delayed=0, dead_letter=0, workers=workers,
        workers_dead=0, completed_last_minute=0, failed_last_minute=0, promoted=0, forward_at_s=None,
        reclaim_at_s=None, promote_at_s=None, purge_at_s=None, waiting=waiting, service=service, due_soon=due_soon,
    )  # fmt: skip


def worker(host="p1", *, load=0, idle_since_s=0.0, state=WorkerState.ACTIVE, parked=False, capacity=5):
    return WorkerPulse(f"{host}-1-abc", state, load, capacity, parked, host, idle_since_s)


def a_pool(**spec):
    return builders.pool(**{"concurrency": 5, **spec})


def a_pod(name="p1", *, ready=True):
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": {}}, "status": status}


def figures(pool, *queues, current=(), others=(), told=0):
    return pool_figures(pool, queues, told=told, current=current, others=others, history=PoolHistory(0.0), now_s=NOW_S)


def in_view(found, *, siblings=(), flow=None, name="q"):
    return QueueInView(name, found, flow or Flow(), siblings)


def waiting_of(found):
    return {level.level: level.waiting for level in found.queues[0].levels}


def test_what_waits_is_counted_by_level_with_its_own_target_and_service_time():
    pool = a_pool(targetDrainSeconds=30, levelTargets=[{"level": "high", "targetDrainSeconds": 2}])
    found = figures(pool, in_view(pulse(waiting=(("high", "", 4), ("low", "", 6)), service=(("low", 10, 3.0),))))
    high, low = found.queues[0].levels
    assert (high.waiting, high.target_s, low.waiting, low.target_s) == (4, 2, 6, 30)
    # What is not known of a level is taken from the others.
    assert (high.service_s, low.service_s) == (3.0, 3.0)


def test_tasks_that_this_pool_cannot_run_are_not_its_affair():
    found = pulse(waiting=(("high", "", 2), ("high", "gpu", 40), ("low", "disk,gpu", 8)))
    assert waiting_of(figures(a_pool(), in_view(found))) == {"high": 2, "low": 0}
    assert waiting_of(figures(a_pool(capabilities=["gpu"]), in_view(found))) == {"high": 42, "low": 0}
    assert waiting_of(figures(a_pool(capabilities=["disk", "gpu"]), in_view(found))) == {"high": 42, "low": 8}


def test_pools_share_by_their_weights_what_each_of_them_can_run():
    found = pulse(waiting=(("high", "", 90), ("high", "gpu", 10)))
    plain = Sibling(2.0, frozenset())
    assert waiting_of(figures(a_pool(weight=1), in_view(found, siblings=[plain])))["high"] == pytest.approx(30)
    with_gpu = a_pool(weight=1, capabilities=["gpu"])
    assert waiting_of(figures(with_gpu, in_view(found, siblings=[plain])))["high"] == pytest.approx(30 + 10)


def test_a_paused_queue_needs_nobody_but_for_what_runs():
    busy = Member(a_pod(), PodWork([("q", worker(load=3))]))
    found = figures(a_pool(), in_view(pulse(waiting=(("high", "", 50),), paused=True)), current=[busy])
    assert (found.queues[0].levels, found.queues[0].executing) == ((), 3)


def test_delayed_tasks_that_are_due_soon_count_as_waiting():
    assert waiting_of(figures(a_pool(), in_view(pulse(due_soon=7))))[DELAYED] == 7


def test_a_worker_that_holds_more_than_it_has_slots_counts_by_its_slots():
    holding = Member(a_pod(), PodWork([("q", worker(load=30)), ("r", worker(load=10))]))
    found = figures(a_pool(), in_view(pulse(), name="q"), in_view(pulse(), name="r"), current=[holding])
    assert [queue.executing for queue in found.queues] == [pytest.approx(3.75), pytest.approx(1.25)]


def test_workers_of_former_revisions_are_at_work_but_not_counted_on():
    old = Member(a_pod("old"), PodWork([("q", worker("old", load=2))]))
    found = figures(a_pool(), in_view(pulse()), others=[old])
    assert (found.queues[0].executing, found.busy) == (2, 0)


def test_tasks_that_do_not_end_take_at_least_as_long_as_they_have_been_at_it():
    flow = Flow()
    flow.observe(waiting=5, claimed=3, executing=3, runs=0, now_s=NOW_S - 60)
    for measured, expected in (((), 60.0), ((("high", 5, 1.0),), 60.0), ((("high", 5, 100.0),), 100.0)):
        found = figures(a_pool(targetDrainSeconds=30), in_view(pulse(service=measured), flow=flow))
        assert found.queues[0].service_s == pytest.approx(expected)


def test_what_is_hardly_known_leaves_the_rule_for_the_unknown_in_force():
    flow = Flow()
    flow.observe(waiting=5, claimed=3, executing=3, runs=0, now_s=NOW_S - 1)
    found = figures(a_pool(targetDrainSeconds=30), in_view(pulse(waiting=(("high", "", 5),)), flow=flow))
    assert (found.queues[0].service_s, found.queues[0].levels[0].service_s) == (None, None)


# ── idle times ───────────────────────────────────────────────────────────────────────────────────────


def idle_after(pods, pulses, history, now_s):
    found = members(pods, pods_at_work(list(pulses.items())))
    return {pod.name: pod.idle_s for pod in with_idle_times(found, pulses, history, now_s)}


def test_idle_is_who_holds_nothing_in_any_of_its_queues():
    pulses = {
        "q": pulse(workers=(worker("a", idle_since_s=4900.0), worker("b", idle_since_s=4990.0))),
        "r": pulse(workers=(worker("a", load=1, idle_since_s=4000.0), worker("b", idle_since_s=4800.0))),
    }
    assert idle_after([a_pod("a"), a_pod("b")], pulses, PoolHistory(0.0), NOW_S) == {"a": 0.0, "b": 10.0}


def test_a_pod_without_a_worker_has_had_nothing_to_do_since_it_was_seen():
    history = PoolHistory(0.0)
    pods = [a_pod("new", ready=False), a_pod("forgotten", ready=True)]
    assert idle_after(pods, {"q": pulse()}, history, NOW_S) == {"new": 0.0, "forgotten": 0.0}
    # One that is ready and that Redis does not know may be at work: its Redis has lost its data.
    assert idle_after(pods, {"q": pulse()}, history, NOW_S + 9) == {"new": 9.0, "forgotten": 0.0}


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Sibling(1.0, frozenset())),
        ({"weight": 3, "capabilities": ["gpu"]}, Sibling(3.0, frozenset({"gpu"}))),
        ({"weight": "much", "capabilities": "gpu"}, Sibling(1.0, frozenset())),
        ({"weight": True}, Sibling(1.0, frozenset())),
        ({"weight": -1}, Sibling(1.0, frozenset())),
    ],
)
def test_a_sibling_is_read_from_whatever_was_stored(spec, expected):
    assert sibling({"spec": spec}) == expected


def started(made, running, restarts=0):
    state = {"running": {"startedAt": running}} if running else {"waiting": {}}
    status = {"containerStatuses": [{"restartCount": restarts, "state": state}]}
    return {"metadata": {"creationTimestamp": made}, "status": status}


def test_how_long_a_start_takes_is_what_the_slowest_took():
    made = "2026-01-01T00:00:00Z"
    pods = [started(made, "2026-01-01T00:00:02Z"), started(made, "2026-01-01T00:00:07Z"), started(made, None)]
    assert start_time_s(pods) == 8.0
    assert start_time_s([]) == 3.0
    assert start_time_s([started(made, "2026-01-01T02:00:00Z", restarts=1)]) == 3.0
    assert start_time_s([started(made, "2026-01-01T02:00:00Z")]) == 300.0
