"""``make demo``: the burst on this run's cluster, and how it is shown."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples.demo import burst
from examples.demo.view import Moment, Outcome, bars, picture, shown, summary
from tests.support.kubernetes import Namespace
from tests.support.operator import Operator

TASKS = 120


@pytest.mark.cluster
@pytest.mark.slow
def test_a_burst_is_worked_off_by_workers_that_come_and_go(namespace: Namespace, operator: Operator):
    console = Console(file=io.StringIO(), width=200)
    operator.release.connect(namespace)
    with operator.release.redis_forwarded() as url:
        outcome = burst.run(namespace, url, TASKS, console)
    assert outcome.is_good
    assert 1 <= outcome.most_pods <= 8
    assert outcome.first_start_s is not None
    assert outcome.all_done_s is not None
    assert outcome.zero_s is not None
    assert outcome.first_start_s < outcome.all_done_s < outcome.zero_s
    assert any("Backlog" in decision for decision in outcome.decisions)
    assert any("Idle" in decision for decision in outcome.decisions)
    said = printed(console)
    assert f"completed 0/{TASKS}; pods 0" in said


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────


def moment(elapsed_s: float, *, waiting: int = 7, completed: int = 3, pods: int = 2) -> Moment:
    return Moment(
        elapsed_s, {"high": waiting, "low": 0}, executing=1, completed=completed, pods=pods, ready=1, decision="why"
    )


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_where_there_is_no_terminal_a_line_tells_what_is_new_every_two_seconds():
    console = Console(file=io.StringIO(), width=40)
    with shown(console, 10) as show:
        for each in (
            moment(0.0),
            moment(0.5, completed=4),
            moment(2.5, completed=5),
            moment(5.0, completed=5),
            moment(5.5, completed=6),
        ):
            show(each)
    assert printed(console).splitlines() == [
        "   0 s  waiting: high 7, low 0; executing 1; completed 3/10; pods 2, 1 ready",
        "   2 s  waiting: high 7, low 0; executing 1; completed 5/10; pods 2, 1 ready",
        "   6 s  waiting: high 7, low 0; executing 1; completed 6/10; pods 2, 1 ready",
    ]


def test_in_a_terminal_the_picture_has_every_level_the_pods_and_why():
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    with shown(console, 10) as show:
        show(moment(0.0, pods=0))
        show(moment(2.2, pods=4))
    said = printed(console)
    for part in ("high", "low", "completed 3/10", "4   1 ready    ██", "decided   why"):
        assert part in said


def test_a_bar_is_as_high_as_its_share_of_the_greatest():
    assert bars([0, 1, 4, 8, 8, 2, 0]) == " ▁▄██▂ "
    assert bars([0, 0]) == "  "
    assert bars([]) == ""


def test_before_anything_was_decided_the_picture_says_so():
    console = Console(file=io.StringIO(), width=80)
    console.print(picture(Moment(0.0, {"only": 1}, 0, 0, 0, 0), 1, []))
    assert "nothing yet" in printed(console)


@pytest.mark.parametrize(("completed", "zero_s", "is_good"), [(10, 26.2, True), (9, 26.2, False), (10, None, False)])
def test_it_went_well_when_all_is_done_and_no_pod_is_left(completed: int, zero_s: float | None, is_good: bool):
    outcome = Outcome(10, completed, 6, 1.64, 14.1, zero_s, ["20:21:50  0 → 6  Backlog: so it is"])
    assert outcome.is_good is is_good
    console = Console(file=io.StringIO(), width=80)
    console.print(summary(outcome))
    said = printed(console)
    assert f"{completed} of 10, 14.1 s after" in said
    assert "1.6 s after they were enqueued" in said
    assert "0 → 6  Backlog: so it is" in said
    assert ("26.2 s after" in said) is (zero_s is not None)
