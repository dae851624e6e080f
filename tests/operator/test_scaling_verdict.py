"""The judgement of the scaling drill can go either way: stories made by hand, each with one thing that is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.operator.scaling_verdict import Blow, Departure, Evidence, Moment, Story, Verdict, judge, pod_of, told

POD = "steady-48eb68f2-7c8775d4d6-sknjn"
WORKER, RESTARTED = f"{POD}-1-a1b2c3", f"{POD}-1-d4e5f6"
OTHER = "steady-48eb68f2-7c8775d4d6-p8rgg-1-a7b8c9"

KILL = Blow(POD, "killed", 12.0, 12.3)
DELETE = Blow(POD, "deleted", 12.0, 12.3)


def claimed(at_s: float, worker: str = WORKER, attempt: int = 1) -> Moment:
    return Moment(at_s, "claimed", worker, attempt)


def completed(at_s: float, worker: str = WORKER, attempt: int = 1) -> Moment:
    return Moment(at_s, "completed", worker, attempt)


def handed_back(at_s: float, worker: str = WORKER) -> Moment:
    return Moment(at_s, "handed_back", worker)


def expired(at_s: float, worker: str = WORKER) -> Moment:
    return Moment(at_s, "retrying", worker, 1, "lease_expired")


def story(*moments: Moment, state: str | None = "completed", retry_count: int = 0) -> Story:
    return Story("a-task", 5.0, state, retry_count, (Moment(9.0, "enqueued"), *moments))


PLAIN = story(claimed(10.0), completed(15.0))
RETRIED = story(claimed(10.0), expired(20.0), claimed(21.0, OTHER, 2), completed(26.0, OTHER, 2), retry_count=1)
RETURNED = story(claimed(10.0), handed_back(14.2), claimed(14.3, OTHER), completed(19.3, OTHER))


def judged(one: Story, *blows: Blow, departures: tuple[Departure, ...] = ()) -> Verdict:
    return judge(Evidence([one], blows, departures))


def charges(verdict: Verdict) -> list[str]:
    return [finding.charge for finding in verdict.findings]


# ── what is as it should be ──────────────────────────────────────────────────────────────────────────


def test_a_task_that_completes_at_once():
    verdict = judged(PLAIN)
    assert (verdict.tasks, verdict.completed, verdict.retried, verdict.findings) == (1, 1, 0, [])


def test_a_retry_after_a_kill_is_explained_and_its_recovery_is_measured():
    verdict = judged(RETRIED, KILL)
    assert (verdict.completed, verdict.retried, charges(verdict)) == (1, 1, [])
    assert verdict.recoveries_s == [pytest.approx(9.0)]


def test_what_a_killed_worker_had_just_asked_for_is_explained_as_well():
    before = Story("another", 1.0, "completed", 0, (claimed(10.0), completed(12.5)))
    late = story(claimed(12.5), expired(22.5), claimed(23.0, OTHER, 2), completed(28.0, OTHER, 2), retry_count=1)
    assert charges(judge(Evidence([before, late], [KILL]))) == []
    # Nobody has heard of it before: it may be the process that came after.
    assert charges(judge(Evidence([late], [KILL]))) == ["attempt spent"]


def test_a_task_that_a_deleted_worker_hands_back():
    verdict = judged(RETURNED, DELETE)
    assert (verdict.given_back_by_deleted, verdict.returned_at_once, charges(verdict)) == (1, 0, [])


def test_a_deleted_pod_may_claim_until_its_worker_hears_of_it():
    late = story(claimed(12.8), handed_back(15.0), claimed(15.1, OTHER), completed(20.1, OTHER))
    assert charges(judged(late, DELETE)) == []


def test_a_claim_that_goes_back_at_once_is_counted_and_is_no_interruption():
    verdict = judged(story(claimed(10.0), handed_back(10.4), claimed(10.5, OTHER), completed(15.5, OTHER)))
    assert (verdict.returned_at_once, verdict.interrupted, charges(verdict)) == (1, 0, [])


def test_a_pod_that_goes_when_its_task_has_ended():
    assert charges(judged(PLAIN, departures=(Departure(POD, 15.5),))) == []


def test_a_killed_pod_may_be_told_to_go_with_what_it_seems_to_hold():
    assert charges(judged(RETRIED, KILL, departures=(Departure(POD, 18.0),))) == []


# ── what must not be ─────────────────────────────────────────────────────────────────────────────────


def test_a_task_without_a_record_is_lost():
    assert charges(judged(replace(PLAIN, state=None, moments=PLAIN.moments[:2]))) == ["lost"]


def test_a_completed_task_whose_record_has_gone_is_lost_as_well():
    assert charges(judged(replace(PLAIN, state=None))) == ["lost"]


@pytest.mark.parametrize("state", ["queued", "executing", "dead_letter", "cancelled"])
def test_a_task_that_has_not_completed_is_lost(state):
    ends = (Moment(15.0, state, WORKER),) if state in ("dead_letter", "cancelled") else ()
    assert charges(judged(story(claimed(10.0), *ends, state=state))) == ["lost"]


def test_a_completed_task_of_which_no_event_tells_is_not_taken_for_granted():
    assert charges(judged(replace(PLAIN, moments=()))) == ["lost"]


def test_a_task_that_completes_twice():
    verdict = judged(story(claimed(10.0), completed(15.0), completed(16.0, OTHER)))
    assert charges(verdict) == ["settled twice"]
    assert verdict.completed == 0


def test_a_retry_without_a_kill():
    verdict = judged(RETRIED)
    assert charges(verdict) == ["attempt spent"]
    assert "lease_expired" in verdict.findings[0].sentence


@pytest.mark.parametrize(
    "blow",
    [
        pytest.param(replace(KILL, pod="steady-48eb68f2-7c8775d4d6-zzzzz"), id="of another pod"),
        pytest.param(replace(KILL, from_s=22.0, until_s=22.2), id="too late"),
        pytest.param(replace(KILL, from_s=8.0, until_s=8.2), id="of the process before"),
    ],
)
def test_a_retry_that_the_kill_does_not_explain(blow):
    assert charges(judged(RETRIED, blow)) == ["attempt spent"]


def test_one_kill_does_not_explain_the_loss_of_the_next_process_in_the_same_pod():
    twice = story(
        *(claimed(10.0), expired(20.0), claimed(21.0, RESTARTED, 2), expired(40.0, RESTARTED)),
        *(claimed(41.0, OTHER, 3), completed(46.0, OTHER, 3)),
        retry_count=2,
    )
    verdict = judged(twice, KILL)
    assert charges(verdict) == ["attempt spent"]
    assert verdict.findings[0].at_s == 40.0


def test_a_retry_that_no_event_tells_of():
    assert charges(judged(replace(PLAIN, retry_count=1))) == ["attempt spent"]


def test_a_task_that_is_handed_back_after_it_has_begun():
    verdict = judged(RETURNED)
    assert charges(verdict) == ["interrupted"]
    assert verdict.interrupted == 1
    assert (verdict.findings[0].pod, verdict.findings[0].at_s) == (POD, 14.2)


def test_a_busy_pod_that_is_told_to_go_though_its_task_completes_within_the_grace():
    verdict = judged(PLAIN, departures=(Departure(POD, 14.0), Departure(POD, 14.5)))
    assert charges(verdict) == ["told to go while busy"]
    assert verdict.findings[0].at_s == 14.0


def test_an_interrupted_worker_counts_once_whatever_shows_it():
    verdict = judged(RETURNED, departures=(Departure(POD, 12.0),))
    assert sorted(charges(verdict)) == ["interrupted", "told to go while busy"]
    assert verdict.interrupted == 1


def test_each_task_is_judged_by_itself():
    stories = [replace(PLAIN, task_id="fine"), replace(RETURNED, task_id="interrupted"), replace(RETRIED, task_id="ok")]
    verdict = judge(Evidence(stories, [replace(KILL, from_s=16.0, until_s=16.1)]))
    assert [(finding.charge, finding.task_id) for finding in verdict.findings] == [("interrupted", "interrupted")]
    assert (verdict.tasks, verdict.completed, verdict.retried) == (3, 3, 1)


def test_a_worker_is_named_for_its_pod():
    assert pod_of(WORKER) == POD


def test_a_story_is_told_in_order():
    lines = list(told(RETRIED, since_s=9.0))
    assert lines[0] == "a-task, of 5.00 s: completed, 1 retries"
    assert [line.split("  ")[-1].split(",")[0] for line in lines[1:]] == [
        *("enqueued", "claimed", "retrying", "claimed", "completed")
    ]
