"""Carrying a W3C trace context from the enqueue to the handler, and on to what the handler enqueues."""

from __future__ import annotations

import contextvars
import os
import re
import sys

from .errors import InvalidInput

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_current: contextvars.ContextVar[str] = contextvars.ContextVar("headrace_traceparent", default="")


def is_traceparent(value: object) -> bool:
    """Whether this is a W3C traceparent."""
    return isinstance(value, str) and not value.startswith("ff") and _TRACEPARENT.fullmatch(value) is not None


def check_traceparent(field: str, value: object) -> str:
    """Return ``value`` if it is a W3C traceparent, else raise `InvalidInput`."""
    if not isinstance(value, str) or not is_traceparent(value):
        raise InvalidInput(field, f"{str(value)[:80]!r} is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)")
    return value


def traceparent_of(trace_id: int, span_id: int, flags: int) -> str:
    """As it is written."""
    return f"00-{trace_id:032x}-{span_id:016x}-{int(flags):02x}"


def child_of(traceparent: str) -> str:
    """The same trace, a new span."""
    version, trace_id, _, flags = traceparent.split("-")
    return f"{version}-{trace_id}-{os.urandom(8).hex()}-{flags}"


def trace_id_of(traceparent: str) -> str:
    """The part that stays the same along a trace."""
    return traceparent.split("-")[1] if traceparent else ""


def for_enqueue() -> str:
    """The context a new task should carry: a child of the current one; empty when it begins a trace of its own."""
    current = _current.get() or _from_opentelemetry()
    return child_of(current) if current else ""


def of_task(task_id: str, carried: str) -> str:
    """The context of a task: the one it carries, or the trace that it begins, whose id is the task's own."""
    if carried:
        return carried
    digits = task_id.replace("-", "")
    return f"00-{digits}-{digits[16:]}-01"


def enter(traceparent: str) -> contextvars.Token[str]:
    """Make ``traceparent`` the current context of this task or thread."""
    return _current.set(traceparent)


def leave(token: contextvars.Token[str]) -> None:
    """Undo `enter`."""
    _current.reset(token)


def current_traceparent() -> str:
    """The context this code runs in, or an empty string."""
    return _current.get()


def _from_opentelemetry() -> str:
    """The active OpenTelemetry span, if the program uses OpenTelemetry. Never imports it by itself."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return ""
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    return traceparent_of(span.trace_id, span.span_id, span.trace_flags)
