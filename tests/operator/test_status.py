"""Conditions that turn only when something turned, figures that are never guessed, and problems with a way out."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.config import Level, Promotion, QueueConfig
from headrace_operator.scaling import Decision, Figures, decide
from headrace_operator.status import (
    MAX_MESSAGE_CHARS,
    Condition,
    Problem,
    QueueFigures,
    changed,
    condition,
    decision_status,
    merge_conditions,
    pod_problem,
    rfc3339,
    starving,
    taskqueue_status,
    wait_bounds_s,
    workerpool_status,
)
from tests.operator.builders import level_load, pool, pool_figures, queue, queue_load

NOW = datetime(2030, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC)
NOW_TEXT = "2030-01-31T12:00:00Z"
NOW_S = NOW.timestamp()
LATER = NOW + timedelta(seconds=1)


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────


def test_times_are_in_utc_and_whole_seconds():
    assert rfc3339(NOW) == NOW_TEXT
    assert rfc3339(NOW.astimezone(timezone(timedelta(hours=2)))) == NOW_TEXT


@pytest.mark.parametrize(("status", "text"), [(True, "True"), (False, "False"), (None, "Unknown")])
def test_a_condition_has_the_shape_that_kubernetes_asks_for(status, text):
    found = condition("Ready", status, "Published", "All is well.")
    assert merge_conditions([], [found], 3, NOW) == [
        {
            "type": "Ready",
            "status": text,
            "reason": "Published",
            "message": "All is well.",
            "lastTransitionTime": NOW_TEXT,
            "observedGeneration": 3,
        }
    ]


@pytest.mark.parametrize("reason", ["", "not ready", "notReady", "1st", "A" * 65])
def test_a_reason_is_one_word(reason):
    with pytest.raises(ValueError, match="is not CamelCase"):
        condition("Ready", False, reason, "")


def test_a_message_of_any_length_fits():
    assert condition("Ready", False, "Crashed", "x" * 100_000).message == "x" * (MAX_MESSAGE_CHARS - 3) + "..."


TYPES = st.sampled_from(["Ready", "Paused", "Starving", "Theirs"])
STATUSES = st.sampled_from([True, False, None])
FOUND = st.builds(condition, TYPES, STATUSES, st.sampled_from(["A", "B"]), st.text(max_size=5))
FINDINGS = st.lists(FOUND, max_size=4, unique_by=lambda found: found.type)


@given(FINDINGS, FINDINGS, st.integers(0, 9), st.integers(1, 10_000))
def test_a_time_of_transition_changes_with_the_status_only(before, after, generation, seconds):
    old = merge_conditions([], before, 1, NOW)
    later = NOW + timedelta(seconds=seconds)
    new = {entry["type"]: entry for entry in merge_conditions(old, after, generation, later)}
    was = {found.type: found for found in before}
    for found in after:
        entry = new[found.type]
        is_same = found.type in was and was[found.type].status == found.status
        assert entry["lastTransitionTime"] == (NOW_TEXT if is_same else rfc3339(later))
        assert (entry["status"], entry["reason"], entry["message"]) == (found.status, found.reason, found.message)
        assert entry["observedGeneration"] == generation


@given(FINDINGS, FINDINGS)
def test_no_condition_is_lost_and_none_is_there_twice(before, after):
    old = merge_conditions([], before, 1, NOW)
    new = merge_conditions(old, after, 2, NOW + timedelta(hours=1))
    types = [entry["type"] for entry in new]
    assert types[: len(old)] == [entry["type"] for entry in old]
    assert len(types) == len(set(types))
    assert set(types) == {found.type for found in (*before, *after)}
    touched = {found.type for found in after}
    assert [entry for entry in new if entry["type"] not in touched] == [
        entry for entry in old if entry["type"] not in touched
    ]


@given(FINDINGS, FINDINGS)
def test_to_find_the_same_again_changes_nothing(before, after):
    once = merge_conditions(merge_conditions([], before, 1, NOW), after, 2, NOW)
    assert merge_conditions(once, after, 2, NOW + timedelta(days=1)) == once


def test_conditions_of_others_are_kept_as_they_are():
    theirs = {"type": "example.com/Audited", "status": "True", "lastTransitionTime": "x", "more": {"a": 1}}
    assert merge_conditions([theirs], [condition("Ready", True, "A", "")], 1, NOW)[0] == theirs


def test_old_conditions_without_a_type_or_a_time_do_no_harm():
    old: list[Any] = [None, "Ready", {}, {"type": 7}, {"type": "Ready", "status": "True"}]
    (found,) = merge_conditions(old, [condition("Ready", True, "A", "")], 1, NOW)
    assert found["lastTransitionTime"] == NOW_TEXT


# ── TaskQueue ────────────────────────────────────────────────────────────────────────────────────────


def figures(*levels: tuple[str, int, float | None], **other: Any) -> QueueFigures:
    usual: dict[str, Any] = {
        "executing": 4,
        "delayed": 5,
        "dead": 6,
        "workers_active": 1,
        "workers_draining": 2,
        "workers_dead": 3,
        "completed_last_minute": 70,
        "failed_last_minute": 8,
        "promoted": 9,
        "paused": False,
    }
    return QueueFigures(levels=levels, **usual | other)


READY = merge_conditions([], [condition("Ready", True, "Published", "")], 3, NOW)


def test_the_status_of_a_queue():
    found = taskqueue_status({}, 3, figures(("high", 0, None), ("low", 2, NOW_S - 60), ("x", 1, NOW_S - 5)), READY)
    assert found == {
        "observedGeneration": 3,
        "conditions": READY,
        "depth": 3,
        "executing": 4,
        "delayed": 5,
        "dead": 6,
        "oldestTime": "2030-01-31T11:59:00Z",
        "levels": [
            {"name": "high", "depth": 0},
            {"name": "low", "depth": 2, "oldestTime": "2030-01-31T11:59:00Z"},
            {"name": "x", "depth": 1, "oldestTime": "2030-01-31T11:59:55Z"},
        ],
        "workers": {"active": 1, "draining": 2, "dead": 3},
        "completedPerMinute": 70,
        "failedPerMinute": 8,
        "promoted": 9,
        "paused": False,
    }


def test_an_outage_is_not_shown_as_zero():
    before = taskqueue_status({}, 3, figures(("high", 7, NOW_S)), READY)
    unreachable = merge_conditions(READY, [condition("Ready", False, "BackendUnreachable", "")], 4, NOW)
    during = taskqueue_status(before, 4, None, unreachable)
    assert during == before | {"observedGeneration": 4, "conditions": unreachable}


def test_what_was_never_known_is_not_there():
    assert taskqueue_status(None, 1, None, READY) == {"observedGeneration": 1, "conditions": READY}


def test_a_queue_that_has_run_empty_has_no_oldest_task():
    before = taskqueue_status({}, 3, figures(("high", 1, NOW_S)), READY)
    after = taskqueue_status(before, 3, figures(("high", 0, None)), READY)
    assert after["oldestTime"] is None  # which removes the field in a merge patch
    assert after["levels"] == [{"name": "high", "depth": 0}]
    assert changed(before, after)
    as_stored = {key: value for key, value in after.items() if value is not None}
    assert not changed(as_stored, taskqueue_status(as_stored, 3, figures(("high", 0, None)), READY))


def test_what_others_wrote_is_kept():
    assert taskqueue_status({"theirs": 1}, 3, figures(), READY)["theirs"] == 1


@pytest.mark.parametrize(
    ("old", "new", "is_changed"),
    [
        (None, {}, False),
        (None, {"depth": 0}, True),
        ({"depth": 0}, {"depth": 0}, False),
        ({"depth": 0, "theirs": 1}, {"depth": 0}, False),
        ({"depth": 0}, {"depth": 0, "oldestTime": None}, False),
        ({"depth": 0, "oldestTime": "x"}, {"depth": 0, "oldestTime": None}, True),
        ({"levels": [{"depth": 1}]}, {"levels": [{"depth": 2}]}, True),
    ],
)
def test_what_has_to_be_written(old, new, is_changed):
    assert changed(old, new) is is_changed


# ── starving ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_bound_on_a_wait_is_the_way_to_the_top():
    assert wait_bounds_s(QueueConfig("q")) == {"medium": 1260.0, "low": 1920.0}


def test_a_way_may_skip_levels_or_end_below_the_top():
    config = QueueConfig(
        "q",
        levels=(Level("a"), Level("b"), Level("c"), Level("d")),
        promotions=(Promotion("d", "b", 10.0), Promotion("c", "a", 20.0)),
        promotion_interval_s=1.0,
    )
    assert wait_bounds_s(config) == {"c": 21.0, "d": 11.0}


LEVEL_COUNT = st.integers(2, 6)


@given(LEVEL_COUNT, st.data())
def test_a_bound_is_that_of_the_next_step_and_of_all_that_follow(count, data):
    names = [f"l{index}" for index in range(count)]
    rules = tuple(
        Promotion(names[index], names[data.draw(st.integers(0, index - 1))], data.draw(st.floats(0.1, 1000)))
        for index in range(1, count)
    )
    config = QueueConfig("q", levels=tuple(map(Level, names)), promotions=rules)
    bounds_s = wait_bounds_s(config)
    assert set(bounds_s) == set(names[1:])
    for rule in rules:
        steps, at = [rule], rule.target
        while at != names[0]:
            steps.append(next(each for each in rules if each.source == at))
            at = steps[-1].target
        expected_s = sum(step.after_s for step in steps) + len(steps) * config.promotion_interval_s
        assert bounds_s[rule.source] == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("level", "waited_s", "is_starving"),
    [
        ("low", 1920.0, False),
        ("low", 1920.5, True),
        ("medium", 1260.0, False),
        ("medium", 1261.0, True),
        ("high", 1e6, False),
        ("a-level-of-old", 1e6, False),
    ],
)
def test_a_task_starves_when_promotion_should_have_moved_it(level, waited_s, is_starving):
    found = starving(queue(), figures((level, 1, NOW_S - waited_s)), NOW_S)
    assert (found.type, found.status) == ("Starving", str(is_starving))
    assert found.reason == ("WaitedTooLong" if is_starving else "WithinBounds")


def test_the_message_says_what_to_change_and_stays_the_same():
    found = starving(queue(), figures(("low", 2, 1_000_000.0), ("medium", 1, 1_002_000.0)), 1_010_000.0)
    assert found.message == (
        "A task on level low has waited since 1970-01-12T13:46:40Z, longer than the promised 1920 s; more come than "
        "promotion moves. Raise promoteBatch of spec.levels[2], lower spec.promotion.intervalSeconds, or add workers."
    )
    later = starving(queue(), figures(("low", 2, 1_000_000.0), ("medium", 1, 1_002_000.0)), 1_020_000.0)
    assert later == found


def test_without_promotions_there_is_nothing_to_be_measured_against():
    found = starving(queue(levels=[{"name": "a"}, {"name": "b"}]), figures(("b", 1, 0.0)), NOW_S)
    assert (found.status, found.reason) == ("False", "NoPromotion")


# ── WorkerPool ───────────────────────────────────────────────────────────────────────────────────────


def pool_status(old: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "desired": 3,
        "revision": "bbbbbbbb",
        "revisions": {"bbbbbbbb": (3, 1), "aaaaaaaa": (2, 2)},
        "busy": 1,
        "idle": 2,
        "draining": 0,
        "conditions": READY,
    }
    return workerpool_status(pool(), old, **usual | changes)


def test_the_status_of_a_pool():
    assert pool_status() == {
        "observedGeneration": 3,
        "conditions": READY,
        "desiredReplicas": 3,
        "replicas": 5,
        "readyReplicas": 3,
        "busy": 1,
        "idle": 2,
        "draining": 0,
        "selector": "headrace.dev/pool=workers",
        "revision": "bbbbbbbb",
        "revisions": [
            {"revision": "aaaaaaaa", "replicas": 2, "ready": 2},
            {"revision": "bbbbbbbb", "replicas": 3, "ready": 1},
        ],
    }


def test_who_is_busy_stays_what_it_was_while_redis_is_away():
    during = pool_status(pool_status(), busy=None, idle=None, draining=None)
    assert during == pool_status()
    assert "busy" not in pool_status(None, busy=None)


def test_the_order_of_revisions_makes_no_difference():
    assert pool_status() == pool_status(revisions={"aaaaaaaa": (2, 2), "bbbbbbbb": (3, 1)})


def decided(replicas: int, waiting: float = 0, **changes: Any) -> Decision:
    """What is decided for a pool of so many pods when so many tasks wait, each of which needs half a slot."""
    queues = (queue_load(level_load(waiting=waiting, service_s=30, target_s=30)),)
    return decide(pool_figures(*queues, replicas=replicas, min_replicas=1, **changes))


def test_a_decision_that_changes_the_number_is_put_down():
    decision = decided(1, waiting=25)
    told = {
        "time": "2030-01-31T12:00:00Z",
        "from": 1,
        "replicas": 3,
        "reason": "Backlog",
        "message": "3 workers are needed: 25 tasks wait, 0 execute",
    }
    assert decision_status(None, decision, NOW) == {
        "lastDecision": told | {"need": 3, "inputs": msgspec.to_builtins(decision.figures)},
        "recentDecisions": [told],
    }


def test_what_a_decision_was_made_from_leads_to_it_again():
    decision = decided(1, waiting=25)
    stored = json.loads(json.dumps(decision_status(None, decision, NOW)["lastDecision"]["inputs"]))
    assert decide(msgspec.convert(stored, Figures)) == decision


def test_a_pool_at_rest_writes_nothing():
    first = pool_status(decisions=decision_status(None, decided(1, waiting=1), NOW))
    assert (first["lastDecision"]["reason"], first["recentDecisions"]) == ("Steady", [])
    again = pool_status(first, decisions=decision_status(first, decided(1, waiting=2), LATER))
    assert not changed(first, again)


def test_another_reason_is_put_down_and_is_no_change_of_the_number():
    before = decision_status(None, decided(1, waiting=25), NOW)
    after = decision_status(before, decided(3, waiting=25), LATER)
    assert (after["lastDecision"]["reason"], after["lastDecision"]["time"]) == ("Steady", rfc3339(LATER))
    assert after["recentDecisions"] == before["recentDecisions"]


def test_a_change_that_is_still_under_way_is_put_down_once():
    """As when workers are to go that are busy: the number stays what it is until they have finished."""
    before = decision_status(None, decided(5, fixed_replicas=2), NOW)
    assert decision_status(before, decided(5, fixed_replicas=2), LATER) == before
    after = decision_status(before, decided(4, fixed_replicas=2), LATER)
    assert [(told["from"], told["replicas"]) for told in after["recentDecisions"]] == [(4, 2), (5, 2)]


def test_a_change_under_way_for_another_reason_is_still_one_change():
    before = decision_status(None, decided(5, fixed_replicas=2), NOW)
    after = decision_status(before, decided(5, fixed_replicas=3, max_replicas=2), LATER)
    assert (before["lastDecision"]["reason"], after["lastDecision"]["reason"]) == ("FixedSize", "AtMaximum")
    assert after["recentDecisions"] == before["recentDecisions"]


def test_the_newest_ten_changes_are_kept():
    status: dict[str, Any] = {}
    for replicas in range(1, 13):
        status = decision_status(status, decided(replicas, fixed_replicas=replicas + 1, max_replicas=99), NOW)
    assert [told["replicas"] for told in status["recentDecisions"]] == list(range(13, 3, -1))


def test_decisions_are_kept_by_who_has_none_to_tell():
    before = pool_status(decisions=decision_status(None, decided(1, waiting=25), NOW))
    assert pool_status(before) == before


@pytest.mark.parametrize("old", [{"lastDecision": None}, {"lastDecision": "?", "recentDecisions": ["?", None]}])
def test_what_others_left_in_the_place_of_decisions_does_no_harm(old):
    assert decision_status(old, decided(1, waiting=25), NOW) == decision_status(None, decided(1, waiting=25), NOW)


# ── why workers do not run ───────────────────────────────────────────────────────────────────────────


def pod(name: str = "workers-1", *, conditions: list[dict[str, Any]] | None = None, **container: Any) -> dict[str, Any]:
    statuses = [{"name": "worker", "image": "shop:1", **container}] if container else []
    return {"metadata": {"name": name}, "status": {"conditions": conditions or [], "containerStatuses": statuses}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def terminated(exit_code: int = 1, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}


def refused(message: str, status: str = "True") -> dict[str, Any]:
    failure = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message}
    return {"metadata": {"name": "workers-aaaaaaaa"}, "status": {"conditions": [failure]}}


TRACEBACK = "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'shop'\n\n"


def test_an_image_that_cannot_be_pulled():
    found = pod_problem([], [pod(state=waiting("ImagePullBackOff", "Back-off pulling\nimage"))])
    assert found == Problem(
        "ImageNotPulled",
        "Pod workers-1 cannot get image shop:1 (ImagePullBackOff: Back-off pulling image). "
        "Correct spec.image, or name the registry's Secret in spec.template.imagePullSecrets.",
    )


def test_a_task_module_that_cannot_be_imported():
    found = pod_problem([], [pod(state=waiting("CrashLoopBackOff"), lastState=terminated(1, TRACEBACK))])
    assert found == Problem(
        "WorkerCrashes",
        "The worker in pod workers-1 ended with exit code 1: ModuleNotFoundError: No module named 'shop'. "
        "Correct spec.tasks, spec.image or spec.template; its log has the rest.",
    )


def test_the_first_crash_is_reported_before_kubernetes_calls_it_a_loop():
    crashed = pod_problem([], [pod(state=terminated(2, "headrace: app: no module named 'shop'"))])
    assert crashed is not None
    assert "ended with exit code 2: headrace: app: no module named 'shop'. " in crashed.message


def test_a_worker_that_said_nothing():
    found = pod_problem([], [pod(state=terminated(139))])
    assert found is not None
    assert "ended with exit code 139: it said nothing. " in found.message


def test_what_a_worker_said_is_shortened_and_printable():
    found = pod_problem([], [pod(state=terminated(1, "\x1b[31m" + "x" * 10_000))])
    assert found is not None
    assert "\x1b" not in found.message
    assert len(found.message) < 600


def test_a_worker_that_takes_too_much_memory():
    found = pod_problem([], [pod(state=terminated(137, reason="OOMKilled"))])
    assert found is not None
    assert found.reason == "OutOfMemory"
    assert "spec.template.resources.limits.memory" in found.message


def _since(startup: str, ready: str, since: str) -> dict[str, Any]:
    return pod(
        conditions=[{"type": "Ready", "status": ready, "lastTransitionTime": since}],
        state={"running": {"startedAt": startup}},
        lastState=terminated(1, TRACEBACK),
    )


def test_a_worker_that_is_up_again_for_a_moment_still_crashes():
    found = pod_problem([], [_since("2030-01-31T12:00:10Z", "False", "2030-01-31T12:00:00Z")])
    assert found is not None
    assert found.reason == "WorkerCrashes"


@pytest.mark.parametrize(
    ("startup", "ready", "since"),
    [
        ("2030-01-31T12:00:10Z", "True", "2030-01-31T12:00:11Z"),
        # It was ready in this run; now it is being drained.
        ("2030-01-31T12:00:10Z", "False", "2030-01-31T13:00:00Z"),
    ],
)
def test_a_crash_that_is_over_is_none(startup, ready, since):
    assert pod_problem([], [_since(startup, ready, since)]) is None


def test_a_worker_that_ended_as_it_was_told():
    assert pod_problem([], [pod(state=terminated(0, reason="Completed"))]) is None


def test_a_secret_that_is_missing():
    message = 'secret "orders-redis" not found'
    found = pod_problem([], [pod(state=waiting("CreateContainerConfigError", message))])
    assert found is not None
    assert found.reason == "ContainerNotStarted"
    assert message in found.message


def test_a_pod_that_no_node_takes():
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: cpu"}
    assert pod_problem([], [pod(conditions=[scheduled])]) == Problem(
        "Unschedulable",
        "No node takes pod workers-1 (Unschedulable: 0/3 nodes: cpu). Add nodes, or lower spec.template.resources or "
        "change spec.template.nodeSelector or tolerations.",
    )


def test_a_quota_that_is_used_up():
    found = pod_problem([refused('pods "workers-x" is forbidden: exceeded quota: small, requested: pods=1')], [])
    assert found is not None
    assert found.reason == "QuotaExceeded"
    assert "exceeded quota: small" in found.message
    assert "Raise the quota" in found.message


def test_pods_that_are_refused_for_another_reason():
    found = pod_problem([refused("pods are forbidden: violates PodSecurity")], [])
    assert found is not None
    assert found.reason == "PodsRefused"
    assert pod_problem([refused("long ago", status="False")], []) is None


def test_what_a_person_can_mend_in_the_pool_comes_first():
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pods = [
        pod("a", conditions=[scheduled]),
        pod("b", state=terminated()),
        pod("c", state=waiting("ErrImagePull")),
    ]
    deployments = [refused("exceeded quota")]
    reasons: list[str] = []
    while (found := pod_problem(deployments, pods)) is not None and len(reasons) < 4:
        reasons.append(found.reason)
        if found.reason == "QuotaExceeded":
            deployments.clear()
        else:
            pods.pop()
    assert reasons == ["ImageNotPulled", "WorkerCrashes", "QuotaExceeded", "Unschedulable"]


def test_the_same_pod_is_named_again_whatever_the_order():
    pods = [pod(name, state=terminated()) for name in ("b", "a", "c")]
    assert pod_problem([], pods) == pod_problem([], pods[::-1])


def test_pods_on_their_way_out_are_passed_over():
    leaving = pod(state=terminated())
    leaving["metadata"]["deletionTimestamp"] = NOW_TEXT
    assert pod_problem([], [leaving]) is None


@pytest.mark.parametrize(
    "body", [{}, {"metadata": None, "status": None}, {"status": {"containerStatuses": [None, {}]}}]
)
def test_a_pod_about_which_nothing_is_known_is_no_problem(body):
    assert pod_problem([body], [body, pod(), pod(state={"running": {}}, ready=True)]) is None


def test_every_problem_can_become_a_condition():
    pods = [
        pod(state=waiting("ErrImagePull", "x" * 5000)),
        pod(state=waiting("CreateContainerError", "x" * 5000)),
        pod(state=terminated(1, "x" * 5000)),
        pod(state=terminated(137, reason="OOMKilled")),
        pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x" * 5000}]),
    ]
    for each in pods:
        found = pod_problem([], [each])
        assert found is not None
        said = condition("Ready", False, found.reason, found.message)
        assert isinstance(said, Condition)
        assert said.message == found.message
        assert re.search(r"(Correct|Create|Raise|Add) ", said.message)  # the next action
