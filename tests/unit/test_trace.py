"""Carrying a trace from the enqueue to the handler and on."""

from __future__ import annotations

import contextvars
import sys
from types import SimpleNamespace

import pytest

from headrace.model import trace
from headrace.model.errors import InvalidInput

ROOT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def no_opentelemetry(monkeypatch):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


@pytest.mark.parametrize("value", [ROOT, ROOT[:-2] + "00", "01" + ROOT[2:]])
def test_a_traceparent_is_returned_as_it_is(value):
    assert trace.check_traceparent("traceparent", value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00-abc-def-01",
        ROOT.upper(),
        ROOT + "-more",
        ROOT + "\n",
        "ff" + ROOT[2:],
        "00-" + "0" * 32 + ROOT[35:],
        ROOT[:36] + "0" * 16 + "-01",
        None,
        5,
    ],
)
def test_anything_else_is_refused(value):
    with pytest.raises(InvalidInput) as caught:
        trace.check_traceparent("traceparent", value)
    shown = repr(str(value)[:80])
    assert str(caught.value) == f"traceparent: {shown} is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)"


def test_a_child_is_the_same_trace_with_another_span():
    child = trace.child_of(ROOT)
    assert trace.check_traceparent("traceparent", child) == child
    assert trace.trace_id_of(child) == trace.trace_id_of(ROOT) == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert child != ROOT
    assert child[-2:] == ROOT[-2:]


def test_a_task_without_a_trace_has_no_trace_id():
    assert trace.trace_id_of("") == ""


def test_outside_of_any_trace_a_task_carries_none_and_begins_its_own():
    assert trace.current_traceparent() == ""
    assert trace.for_enqueue() == ""
    begun = trace.of_task("01a1ec42-7738-767b-844a-520b451cdeda", "")
    assert trace.check_traceparent("traceparent", begun) == begun
    assert begun.endswith("-01")  # sampled
    assert trace.trace_id_of(begun) == "01a1ec427738767b844a520b451cdeda"


def test_a_task_that_carries_a_trace_goes_on_with_it():
    assert trace.of_task("01a1ec42-7738-767b-844a-520b451cdeda", ROOT) == ROOT


def test_what_a_handler_enqueues_goes_on_with_its_trace():
    token = trace.enter(ROOT)
    try:
        assert trace.current_traceparent() == ROOT
        task = trace.for_enqueue()
    finally:
        trace.leave(token)
    assert trace.trace_id_of(task) == trace.trace_id_of(ROOT)
    assert task != ROOT
    assert trace.current_traceparent() == ""


def test_a_trace_stays_in_its_own_context():
    contextvars.copy_context().run(trace.enter, ROOT)
    assert trace.current_traceparent() == ""


def span(*, valid: bool) -> SimpleNamespace:
    context = SimpleNamespace(
        is_valid=valid,
        trace_id=0x4BF92F3577B34DA6A3CE929D0E0E4736,
        span_id=0xF067AA0BA902B7,
        trace_flags=1,
    )
    return SimpleNamespace(get_span_context=lambda: context)


def test_an_open_telemetry_span_is_taken_up(monkeypatch):
    api = SimpleNamespace(get_current_span=lambda: span(valid=True))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    assert trace.trace_id_of(trace.for_enqueue()) == trace.trace_id_of(ROOT)


def test_an_invalid_open_telemetry_span_is_not(monkeypatch):
    api = SimpleNamespace(get_current_span=lambda: span(valid=False))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    assert trace.trace_id_of(trace.for_enqueue()) != trace.trace_id_of(ROOT)


def test_the_trace_of_a_handler_goes_before_an_open_telemetry_span(monkeypatch):
    api = SimpleNamespace(get_current_span=lambda: span(valid=True))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    own = trace.child_of(ROOT)
    token = trace.enter(own)
    try:
        assert trace.trace_id_of(trace.for_enqueue()) == trace.trace_id_of(own)
    finally:
        trace.leave(token)


def test_open_telemetry_is_never_imported_for_this():
    trace.for_enqueue()
    assert "opentelemetry.trace" not in sys.modules
