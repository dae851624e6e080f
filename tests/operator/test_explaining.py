"""Why there are so many pods, in words: the formula adds up, nothing in a status does harm, and logs are made again."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.explaining import (
    decision_lines,
    formula_facts,
    pool_facts,
    pool_lines,
    replay,
    replay_facts,
    replay_lines,
    terms,
)
from headrace_operator.scaling import Decision, Figures, StepLimit, decide
from headrace_operator.status import decision_status
from tests.operator.builders import level_load, pool_body, pool_figures, queue_load
from tests.operator.test_scaling import FIGURES, FIXED_FIGURES

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
ORDERS = queue_load(level_load(waiting=100), level_load("low"), executing=4, arriving_per_s=0.5)
MAILS = queue_load(level_load(waiting=7, service_s=None), queue="mails", service_s=None, arriving_per_s=2.0)


def body(*decisions: Decision, **status: Any) -> dict[str, Any]:
    """A WorkerPool about which these decisions were made, one after the other."""
    told: dict[str, Any] = {}
    for decision in decisions:
        told = decision_status(told, decision, NOW)
    counts = {"desiredReplicas": 5, "readyReplicas": 2, "busy": 1, "idle": 1, "draining": 0, "observedGeneration": 3}
    return pool_body("orders", minReplicas=1, maxReplicas=20) | {"status": {**counts, **told, **status}}


def text(found: dict[str, Any]) -> str:
    return "\n".join(pool_lines(found))


# ── the formula ──────────────────────────────────────────────────────────────────────────────────────


def test_the_formula_is_worked_out_line_by_line():
    figures = pool_figures(
        ORDERS, MAILS, replicas=2, busy=1, idle_s=(130.0, 3.0), up_limit=StepLimit(4, 60.0), added=1
    )  # fmt: skip
    assert decision_lines(decide(figures)) == [
        "  orders, level high  100 waiting x 10 s / (10 s + 30 s)                                   = 25 slots",
        "  orders              4 executing x 10 s / (10 s + 30 s)                                   = 1 slots",
        "  orders              0.5 per s arriving x 30 s x 10 s / (10 s + 30 s)                     = 3.75 slots",
        "  mails, level high   7 waiting x 5 / 50 (length unknown: concurrency / backlogPerWorker)  = 0.7 slots",
        "  mails               2 per s arriving, left out until it is known how long they take      = 0 slots",
        "  together                                                                                 = 30.45 slots",
        "  need                30.45 slots / 5 per worker, rounded up                               = 7 workers",
        "  so far  2 workers, 1 busy, 1 idle for 120 s or longer",
        "  bounds  at least 0 (minReplicas), at most 10 (maxReplicas)",
        "  limits  4 more within 60 s (scaleUpLimit), 1 of them added already",
        "  result  5 workers (StepLimited): 7 workers are needed, and scaleUpLimit allows 5 for now",
    ]


def test_a_pool_with_nothing_to_do():
    lines = decision_lines(decide(pool_figures(queue_load(level_load()), replicas=3, recent_need=1)))
    assert "nothing waits, executes or steadily arrives" in lines[0]
    assert "  to spare  2 workers not needed lately" in lines


def test_a_fixed_size_is_not_computed():
    lines = decision_lines(decide(pool_figures(ORDERS, fixed_replicas=40)))
    assert lines[-3:] == [
        "  fixed   spec.replicas is 40",
        "  bounds  at least 0 (minReplicas), at most 10 (maxReplicas)",
        "  result  10 workers (AtMaximum): spec.replicas is 40, and maxReplicas is 10",
    ]


@given(FIGURES | FIXED_FIGURES)
def test_what_is_shown_adds_up_to_what_was_decided(figures: Figures):
    decision = decide(figures)
    assert math.isclose(math.fsum(term.slots for term in terms(figures)), decision.slots, abs_tol=1e-6)
    assert all("\n" not in line for line in decision_lines(decision))
    json.dumps(formula_facts(decision), allow_nan=False)


# ── a pool ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_pool_is_explained():
    up = decide(pool_figures(ORDERS, replicas=1, max_replicas=20))
    steady = decide(pool_figures(ORDERS, replicas=6, max_replicas=20))
    not_ready = {
        "type": "Ready", "status": "False", "lastTransitionTime": "2030-01-31T12:00:00Z", "reason": "WaitingForPods",
        "message": "2 of 5 pods are ready.",
    }  # fmt: skip
    well = not_ready | {"type": "ScalingActive", "status": "True"}
    said = text(body(up, steady, conditions=[not_ready, well]))
    assert said.startswith(
        "WorkerPool shop/orders: there shall be 5 pods, and 2 of them are ready.\n\n"
        "  desired  ready  busy  idle  draining  min  max\n"
        "  5        2      1     1     0         1    20\n\n"
        "The last decision, at 2030-01-31T12:00:00Z: 6 workers, as before (Steady).\n"
        "  6 workers are needed: 100 tasks wait, 4 execute, 0.5 arrive per second.\n\n"
        "How that comes about:\n"
        "  orders, level high  100 waiting x 10 s / (10 s + 30 s)"
    )
    assert (
        "\n\nThe last changes of the number, newest first:\n"
        "  TIME                  FROM  TO  REASON   MESSAGE\n"
        "  2030-01-31T12:00:00Z  1     6   Backlog  6 workers are needed: 100 tasks wait, 4 execute, 0.5 arrive"
    ) in said
    assert said.endswith(
        "\n\nNot as it should be:\n  Ready is False since 2030-01-31T12:00:00Z (WaitingForPods): 2 of 5 pods are ready"
    )


@pytest.mark.parametrize(
    ("condition", "is_told"),
    [
        ({"type": "Ready", "status": "True"}, False),
        ({"type": "Ready", "status": "Unknown"}, True),
        ({"type": "ScalingActive", "status": "False"}, True),
        ({"type": "ScalingLimited", "status": "True"}, True),
        ({"type": "ScalingLimited", "status": "False"}, False),
        ({"type": "Paused", "status": "True"}, True),
        ({"type": "Draining", "status": "True"}, False),
    ],
)
def test_conditions_that_one_should_know_of(condition, is_told):
    assert (pool_facts(body(conditions=[condition]))["problems"] == [condition]) is is_told


def test_a_pool_of_which_nothing_is_known():
    said = text(pool_body("orders"))
    assert said.startswith("WorkerPool shop/orders: nothing is known of its pods yet.")
    assert "No decision has been made yet: the operator decides once it runs" in said
    assert "this is about what it said before" not in said


def test_a_spec_that_was_changed_since():
    assert "The spec has been changed since; this is about what it said before." in text(body(observedGeneration=2))
    assert pool_facts(body(observedGeneration=2))["isOutdated"]


def test_figures_of_another_version():
    last = {"time": "t", "from": 1, "replicas": 2, "reason": "Backlog", "message": "m"}
    assert "cannot be read by this version of headrace: there are none." in text(body(lastDecision=last))
    said = text(body(lastDecision=last | {"inputs": {"queues": []}}))
    assert "cannot be read by this version of headrace: Object missing required field `replicas`." in said
    inputs = msgspec.to_builtins(pool_figures(ORDERS))
    said = text(body(lastDecision=last | {"inputs": inputs}))
    assert "The operator decided otherwise: this version of headrace would have 6 (Backlog)." in said
    assert "cannot be read" in text(body(lastDecision=last | {"inputs": inputs | {"concurrency": 0}}))


def test_what_goes_to_a_terminal_is_printable():
    last = {"time": "t", "from": 1, "replicas": 2, "reason": "Backlog", "message": "\x1b[31mred\nline"}
    said = text(body(lastDecision=last, recentDecisions=[last]))
    assert "\x1b" not in said
    assert " [31mred line" in said


def test_the_facts_are_those_of_the_status():
    decision = decide(pool_figures(ORDERS, replicas=1))
    facts = json.loads(json.dumps(pool_facts(body(decision))))
    assert (facts["namespace"], facts["name"], facts["minReplicas"], facts["maxReplicas"]) == ("shop", "orders", 1, 20)
    assert facts["counts"] == {"desired": 5, "ready": 2, "busy": 1, "idle": 1, "draining": 0}
    assert facts["lastDecision"]["inputs"]["concurrency"] == 5
    assert (facts["formula"]["slots"], facts["formula"]["need"]) == (decision.slots, decision.need)
    assert facts["formula"]["terms"][0] == {
        "queue": "orders", "what": "waiting", "level": "high", "tasks": 100, "share": 0.25, "slots": 25,
    }  # fmt: skip
    assert [each["replicas"] for each in facts["recentDecisions"]] == [6]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["desiredReplicas", "busy", "lastDecision", "recentDecisions", "observedGeneration"]), ANYTHING)
def test_whatever_a_status_holds_something_is_said(key, value):
    found = body(decide(pool_figures(ORDERS)), **{key: value})
    assert pool_lines(found)
    json.dumps(pool_facts(found))


# ── a log ────────────────────────────────────────────────────────────────────────────────────────────


def line(decision: Decision, **changes: Any) -> str:
    """As the operator logs it."""
    entry = {
        "event": "decision",
        "timestamp": "2030-01-31T12:00:00.5Z",
        "namespace": "shop",
        "name": "orders",
        "replicas": decision.replicas,
        "need": decision.need,
        "reason": decision.reason.value,
        "figures": msgspec.to_builtins(decision.figures),
    }
    return json.dumps(entry | changes)


UP = decide(pool_figures(ORDERS, replicas=1))
DOWN = decide(pool_figures(queue_load(level_load()), replicas=5, idle_s=(500.0,) * 5))


@given(FIGURES | FIXED_FIGURES)
def test_every_decision_of_a_log_is_made_again(figures: Figures):
    (found,) = replay([line(decide(figures))])
    assert (found.problem, found.decision) == (None, decide(figures))


def test_a_log_is_told():
    assert replay_lines(replay([line(UP)])) == [
        "  LINE  TIME                    POOL         FROM  DECIDED                WHY",
        "  1     2030-01-31T12:00:00.5Z  shop/orders  1     6 (Backlog, 6 needed)  "
        "6 workers are needed: 100 tasks wait, 4 execute, 0.5 arrive per second",
        "",
        "1 decision: the figures lead to the same result again.",
    ]


def test_lines_about_other_things_are_passed_over():
    noise = ["", "not json", '{"event": "scaled"}', '{"event": "told", "message": "decision"}', '{"decision": 1', "[]"]
    prefixed = f"[pod/headrace-operator-1/operator] {line(UP)}"
    assert [found.line for found in replay([*noise, prefixed, '"decision"'])] == [len(noise) + 1]


@pytest.mark.parametrize("change", [{"replicas": 7}, {"need": 5}, {"reason": "Idle"}, {"replicas": None}])
def test_a_line_that_does_not_lead_to_the_same_result_is_named(change):
    found = replay([line(UP), line(UP, **change)])
    assert [each.problem is None for each in found] == [True, False]
    said = replay_lines(found)
    assert "2 decisions, of which 1 cannot be made again with the same result:" in said
    assert said[-1].startswith("  line 2: the log says ")
    assert said[-1].endswith("and its figures lead to 6 (Backlog, 6 needed)")


@pytest.mark.parametrize("broken", [None, {}, [], "x", {"queues": []}])
def test_a_line_without_figures_is_named(broken):
    (found,) = replay([line(UP, figures=broken)])
    assert found.problem is not None
    assert found.problem.startswith("its figures cannot be read: ")
    assert replay_lines([found])
    assert replay_facts([found])[0]["formula"] is None


@pytest.mark.parametrize(("replicas", "is_same"), [(0, True), (3, False), (5, False)])
def test_a_step_on_the_way_is_the_same_decision_only_if_the_log_says_what_was_decided(replicas, is_same):
    """From 5 to 0 by way of 3: each step is logged, with the figures that led to it and the number decided on."""
    (found,) = replay([line(DOWN, replicas=replicas, told=3)])
    assert (found.problem is None) is is_same


def test_one_pool_of_many():
    log = [line(UP), line(UP, name="mails"), line(UP, namespace="other")]
    assert [found.line for found in replay(log, name="orders")] == [1, 3]
    assert [found.line for found in replay(log, namespace="shop", name="orders")] == [1]


def test_the_facts_of_a_log():
    (fact,) = json.loads(json.dumps(replay_facts(replay([line(UP)]))))
    assert (fact["line"], fact["namespace"], fact["name"], fact["problem"]) == (1, "shop", "orders", None)
    assert fact["formula"]["replicas"] == 6
