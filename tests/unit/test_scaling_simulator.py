"""The simulator of the scaling decision, and what it finds in the short form of each load."""

from __future__ import annotations

import functools
import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling import picture, report, traces
from benchmarks.scaling.__main__ import BEGIN, END, compare, publish
from benchmarks.scaling.clairvoyant import Clairvoyant
from benchmarks.scaling.model import Run, Settings, Simulation
from benchmarks.scaling.policy import Policy
from benchmarks.scaling.report import BAR, Comparison, waits
from benchmarks.scaling.traces import BadRecord, Task, Trace

SHORT = {
    "steady": lambda seed: traces.steady(seed, span_s=3600.0),
    "wave": lambda seed: traces.wave(seed, span_s=4 * 3600.0),
    "bursts": lambda seed: traces.bursts(seed, span_s=7200.0),
}


@functools.cache
def compared(name: str, seed: int = 1) -> Comparison:
    return compare(SHORT[name](seed), Settings())


def run_policy(tasks: list[Task], pool: Settings | None = None) -> Run:
    pool = pool or Settings()
    return Simulation(Trace("test", "", tuple(tasks)), Policy(), pool).run()


def run_clairvoyant(tasks: list[Task], pool: Settings | None = None) -> Run:
    pool = pool or Settings()
    trace = Trace("test", "", tuple(tasks))
    return Simulation(trace, Clairvoyant(trace, pool), pool).run()


def constant_flow(per_s: float, duration_s: float, span_s: float) -> list[Task]:
    return [Task(index / per_s, "normal", duration_s) for index in range(int(per_s * span_s))]


# ── the model ────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(
        st.builds(Task, st.floats(0, 600), st.sampled_from(traces.LEVELS), st.floats(0.001, 90)),
        min_size=1,
        max_size=60,
    )
)
@settings(deadline=None, max_examples=25)
def test_every_task_runs_once_and_every_second_is_accounted_for(tasks):
    tasks.sort()
    pool = Settings()
    for run, foreseen in ((run_policy(tasks), False), (run_clairvoyant(tasks), True)):
        assert run.tasks == len(run.waited_s) == len(tasks)
        assert all(waited_s >= 0 for waited_s in run.waited_s)
        assert run.busy_slot_s == pytest.approx(math.fsum(task.duration_s for task in tasks))
        assert run.busy_slot_s <= (run.pod_s - run.wasted_s) * pool.concurrency + 1e-6
        assert run.changes[-1][1] == 0
        # The number of pods as it changed says the same as the seconds that were counted.
        numbers = [0, *(number for _, number in run.changes)]
        started_before_s = run.started * pool.start_s if foreseen else 0.0
        assert run.pod_s - started_before_s == pytest.approx(
            math.fsum((later - earlier) * -at_s for (at_s, later), earlier in zip(run.changes, numbers, strict=False))
        )


@pytest.mark.parametrize("name", SHORT)
def test_a_seed_says_everything(name):
    trace = SHORT[name](1)
    assert SHORT[name](1) == trace
    assert SHORT[name](2).tasks != trace.tasks
    pool = Settings()
    assert Simulation(trace, Policy(), pool).run() == compared(name).policy


def test_a_pod_takes_its_time_to_start_and_leaves_when_it_has_been_idle_for_long_enough():
    run = run_policy([Task(10.0, "normal", 3.0)])
    assert run.waited_s == [2.0]
    (began_s, pods), (gone_s, none) = run.changes
    assert (began_s, pods, none) == (10.0, 1, 0)
    assert 135.0 <= gone_s <= 137.0  # it is looked at every two seconds
    assert run.wasted_s == pytest.approx(2.0 + gone_s - 15.0)


def test_the_highest_level_goes_first_and_then_who_came_first():
    pool = Settings(concurrency=1, max_replicas=1)
    tasks = [Task(0.0, "low", 10.0), Task(1.0, "low", 10.0), Task(1.5, "normal", 10.0), Task(1.6, "high", 10.0)]
    # The pod is ready at 2 s, when all of them are there.
    assert run_policy(tasks, pool).waited_s == pytest.approx([2 - 1.6, 12 - 1.5, 22 - 0.0, 32 - 1.0])


# ── the policy ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("per_s", "duration_s"), [(10.0, 2.0), (4.0, 5.0), (1.0, 7.0), (0.5, 40.0)])
def test_a_constant_flow_does_not_make_the_number_of_pods_flap(per_s, duration_s):
    span_s, settled_s = 1800.0, 600.0
    run = run_policy(constant_flow(per_s, duration_s, span_s))
    assert [change for change in run.changes if settled_s < change[0] < span_s] == []


@pytest.mark.parametrize("size", [1, 7, 40, 100, 333, 1000])
@pytest.mark.parametrize("duration_s", [0.5, 4.0, 10.0, 45.0])
def test_a_burst_of_tasks_whose_duration_is_known_has_at_most_one_pod_too_many(size, duration_s):
    learned = constant_flow(0.2, duration_s, 120.0)
    burst = [Task(1000.0, "normal", duration_s)] * size
    run = run_policy([*learned, *burst], Settings(max_replicas=1000))
    pods = max(number for at_s, number in run.changes if at_s >= 1000.0)
    least = run_clairvoyant(burst, Settings(max_replicas=1000))
    assert pods <= max(number for _, number in least.changes) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_the_bar_is_met_in_the_short_form_of_a_load(name):
    """By the median of some seeds: in so short a time chance has its say."""
    assert statistics.median(compared(name, seed).wasted for seed in range(1, 6)) <= BAR


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("steady", 1.20), ("wave", 1.20), ("bursts", 1.20)])
def test_the_policy_does_not_save_waste_by_keeping_pods(name, most):
    """Who keeps pods that are not needed at work wastes nothing by the letter; the pod-seconds tell."""
    assert statistics.median(compared(name, seed).total for seed in range(1, 6)) <= most


# ── the clairvoyant ──────────────────────────────────────────────────────────────────────────────────


def test_the_clairvoyant_has_the_least_number_of_pods_that_is_enough_for_a_burst():
    burst = [Task(0.0, "normal", 10.0)] * 100  # 25 slots begin them at 0, 10, 20 and 30 s
    run = run_clairvoyant(burst)
    assert max(number for _, number in run.changes) == 5
    assert max(run.waited_s) == pytest.approx(30.0)


def test_the_clairvoyant_has_nobody_wait_for_a_pod_before_there_is_work():
    run = run_clairvoyant([Task(50.0, "normal", 10.0)])
    (began_s, pods), (gone_s, none) = run.changes
    assert (began_s, pods, none) == (50.0, 1, 0)
    assert gone_s == pytest.approx(180.0)
    assert run.wasted_s == pytest.approx(2.0 + 120.0), "it was started before it was wanted"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SHORT)
def test_the_clairvoyant_is_never_late_and_takes_less_than_the_policy(name, seed):
    comparison = compared(name, seed)
    assert waits(comparison.clairvoyant, comparison.settings.target_s + 1e-6).late == 0
    assert comparison.clairvoyant.pod_s <= comparison.policy.pod_s


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────


def test_a_recorded_load_is_read_in_order_of_arrival_and_begins_at_its_first_task(tmp_path):
    path = tmp_path / "load.jsonl"
    rows = [{"at_s": 105.0, "level": "b", "duration_s": 1}, {"at_s": 100.0, "level": "a", "duration_s": 2.5}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    trace = traces.recorded(path, ("a", "b"))
    assert trace.tasks == (Task(0.0, "a", 2.5), Task(5.0, "b", 1.0))
    assert compare(trace, Settings()).policy.tasks == 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no json",
        "[]",
        '{"at_s": 1, "level": "normal"}',
        '{"at_s": 1, "level": "other", "duration_s": 1}',
        '{"at_s": 1, "level": "normal", "duration_s": -1}',
        '{"at_s": NaN, "level": "normal", "duration_s": 1}',
    ],
)
def test_what_is_not_a_recorded_load_is_refused_with_a_reason(tmp_path, line):
    path = tmp_path / "load.jsonl"
    path.write_text(line)
    with pytest.raises(BadRecord, match=r"load\.jsonl"):
        traces.recorded(path)


def test_figures_and_picture_go_to_their_place_on_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    publish([[compared("bursts"), compared("bursts", 2)]], page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "page.svg" in text
    assert page.with_suffix(".svg").read_text() == picture.svg([compared("bursts")])


def test_percentiles_are_those_of_the_nearest_rank():
    run = compared("bursts").policy._replace(waited_s=[float(n) for n in range(1, 101)])
    assert waits(run, 90.0) == report.Waits(50.0, 95.0, 99.0, 100.0, 10, 10.0)
