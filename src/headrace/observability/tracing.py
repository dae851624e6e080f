"""The spans of a task, by OpenTelemetry's API: ``enqueue``, and for each attempt ``wait``, ``run`` and ``settle``.

::

    what the program was doing
    └── enqueue                    the producer, until Redis has the task
        ├── wait                   from its place in the line to the claim
        ├── run                    the handler, and below it whatever it does
        │   └── settle             from the handler's end until Redis has taken the outcome
        ├── wait, run              the next attempt

Names are here and nowhere else. Nothing is imported: who has set up OpenTelemetry has imported it, and for anybody else
there are no spans. ``docs/tracing.md`` is about setting it up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from headrace.model import trace
from headrace.model.outcomes import Outcome, Problem, Settlement, SettleStatus

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span
    from opentelemetry.trace import Tracer as Tracer  # re-exported for those who keep one

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
CLIENT_ID: Final = "messaging.client.id"
ERROR_TYPE: Final = "error.type"
TASK_TYPE: Final = "headrace.task.type"
PRIORITY: Final = "headrace.task.priority"
ATTEMPT: Final = "headrace.task.attempt"
OUTCOME: Final = "headrace.outcome"
SETTLE_STATUS: Final = "headrace.settle.status"

_OPERATION_TYPES: Final = {"enqueue": "send", "run": "process", "settle": "settle"}
"""As the semantic conventions call them; they have no word for waiting."""
_LEASE_LOST: Final = "lease_lost"
_MAX_TYPE_CHARS: Final = 200
_SAMPLED: Final = 1

_known: tuple[object, Tracer | None] | None = None


def tracer() -> Tracer | None:
    """The program's own tracer; None when it has set up none."""
    global _known
    provider = _provider()
    if provider is None:
        return None
    known = _known
    if known is None or known[0] is not provider:
        found = provider.get_tracer("headrace")
        # OTEL_SDK_DISABLED makes the SDK hand out tracers that do nothing.
        is_idle = isinstance(found, sys.modules["opentelemetry.trace"].NoOpTracer)
        known = _known = (provider, None if is_idle else found)
    return known[1]


def _provider() -> Any:
    api = sys.modules.get("opentelemetry.trace")
    # While another thread imports it, it may be there and have nothing in it.
    provider = getattr(api, "get_tracer_provider", lambda: None)()
    if api is None or provider is None or isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return None
    return provider


def _attributes(operation: str, queue: str, task_type: str) -> dict[str, Any]:
    attributes = {
        SYSTEM: "headrace",
        DESTINATION: queue,
        OPERATION: operation,
        TASK_TYPE: task_type[:_MAX_TYPE_CHARS],
    }
    if operation in _OPERATION_TYPES:
        attributes[OPERATION_TYPE] = _OPERATION_TYPES[operation]
    return attributes


def _parent(traceparent: str) -> Context:
    """What a span is begun in that shall be a child of this."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    _, trace_id, span_id, flags = traceparent.split("-")
    remote = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
    return set_span_in_context(NonRecordingSpan(remote))


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return trace.traceparent_of(context.trace_id, context.span_id, context.trace_flags)


def enter(traceparent: str) -> None:
    """Make this what OpenTelemetry's next spans are begun in, for the rest of this context; nothing without it."""
    if tracer() is not None:
        from opentelemetry.context import attach

        attach(_parent(traceparent))


# ── the producer ─────────────────────────────────────────────────────────────────────────────────────


class EnqueueSpans:
    """The spans of tasks on their way into Redis: ``with EnqueueSpans() as spans``.

    Those of tasks that were not `stored` by the end of the block have failed with it.
    """

    def __init__(self) -> None:
        self._tracer = tracer()
        self._open: dict[str, list[Span]] = {}

    def begin(self, queue: str, task_type: str, given: str) -> str:
        """The trace context that a new task shall carry; ``given`` is the one it was given by hand, if any."""
        if self._tracer is None:
            return given or trace.for_enqueue()
        from opentelemetry.trace import SpanKind, get_current_span

        if not given and not get_current_span().get_span_context().is_valid:
            given = trace.current_traceparent()
        span = self._tracer.start_span(
            f"enqueue {queue}",
            _parent(given) if given else None,
            SpanKind.PRODUCER,
            _attributes("enqueue", queue, task_type),
        )
        self._open.setdefault(queue, []).append(span)
        return _traceparent(span)

    def stored(self, queue: str, task_ids: Iterable[str]) -> None:
        """Redis has the tasks of this queue, under these ids."""
        for span, task_id in zip(self._open.pop(queue, ()), task_ids, strict=False):
            span.set_attribute(MESSAGE_ID, task_id)
            span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for span in (span for spans in self._open.values() for span in spans):
            if error is not None:
                _record_problem(span, Problem(type(error).__name__, str(error)))
            span.end()


# ── the worker ───────────────────────────────────────────────────────────────────────────────────────


class AttemptSpans:
    """The spans of one attempt, from its claim to its settlement."""

    __slots__ = ("_attributes", "_ended_ns", "_queue", "_run", "_task_type", "_tracer", "traceparent")

    def __init__(
        self,
        tracer: Tracer,
        *,
        worker: str,
        queue: str,
        task_id: str,
        task_type: str,
        priority: str,
        attempt: int,
        carried: str,
        waited_s: float,
        claimed_ago_s: float,
    ) -> None:
        """``carried`` is the trace context that came with the task, or an empty string."""
        self._tracer = tracer
        self._queue = queue
        self._task_type = task_type
        self._attributes: dict[str, Any] = {
            MESSAGE_ID: task_id,
            PRIORITY: priority,
            ATTEMPT: attempt,
            CLIENT_ID: worker,
        }
        self._ended_ns: int | None = None
        self._run: Span | None = None
        # Other programs may enqueue tasks, too, and put anything there.
        self.traceparent = carried if trace.is_traceparent(carried) else self._begun_by(task_id)
        """What the handler runs in."""
        if not int(self.traceparent[-2:], 16) & _SAMPLED:
            return
        from opentelemetry.trace import SpanKind

        parent = _parent(self.traceparent)
        claimed_ns = time.time_ns() - round(claimed_ago_s * 1e9)
        waiting = self._start("wait", parent, SpanKind.INTERNAL, claimed_ns - round(max(0.0, waited_s) * 1e9))
        waiting.end(claimed_ns)
        self._run = self._start("run", parent, SpanKind.CONSUMER)
        self.traceparent = _traceparent(self._run)

    def _begun_by(self, task_id: str) -> str:
        """The trace that a task begins whose producer has none. Whether it is sampled is the sampler's to say.

        It is asked about the random part of the id: all attempts get the same answer, and each task one of its own.
        """
        traceparent = trace.of_task(task_id, "")
        sampler = getattr(self._tracer, "sampler", None)
        if sampler is None:
            return traceparent
        random_id = int(trace.trace_id_of(traceparent), 16) << 2 & (1 << 64) - 1
        decision = sampler.should_sample(None, random_id, f"run {self._queue}").decision
        return traceparent if decision.is_sampled() else f"{traceparent[:-2]}00"

    def _start(self, operation: str, parent: Context, kind: Any, start_ns: int | None = None) -> Span:
        attributes = self._attributes | _attributes(operation, self._queue, self._task_type)
        return self._tracer.start_span(f"{operation} {self._queue}", parent, kind, attributes, start_time=start_ns)

    @property
    def are_recorded(self) -> bool:
        """Whether there is anything to end."""
        return self._run is not None

    def enter(self) -> None:
        """Make it what the handler's own spans are begun in, for the rest of this task of the event loop."""
        from opentelemetry.context import attach

        if self._run is None:
            attach(_parent(self.traceparent))
            return
        from opentelemetry.trace import set_span_in_context

        attach(set_span_in_context(self._run))

    def ran(self, settlement: Settlement | None) -> None:
        """The handler has ended, or is left alone."""
        if self._run is None or self._ended_ns is not None:
            return
        self._ended_ns = time.time_ns()
        self._run.set_attribute(OUTCOME, _LEASE_LOST if settlement is None else settlement.outcome.value)
        if settlement is not None and settlement.outcome in (Outcome.FAILED, Outcome.RETRY):
            _record_problem(self._run, msgspec.json.decode(settlement.body, type=Problem))
        self._run.end(self._ended_ns)

    def settled(self, settlement: Settlement, status: SettleStatus) -> None:
        """Redis has answered."""
        if self._run is None:
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        self.ran(settlement)
        span = self._start("settle", set_span_in_context(self._run), SpanKind.CLIENT, self._ended_ns)
        span.set_attributes({OUTCOME: settlement.outcome.value, SETTLE_STATUS: status.value})
        if status in (SettleStatus.LOST, SettleStatus.GONE):
            span.set_attribute(ERROR_TYPE, status.value)
            span.set_status(Status(StatusCode.ERROR, "the lease was lost"))
        span.end()


def _record_problem(span: Span, problem: Problem) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute(ERROR_TYPE, problem.type)
    span.set_status(Status(StatusCode.ERROR, f"{problem.type}: {problem.message}"))
    event = {"exception.type": problem.type, "exception.message": problem.message}
    if problem.traceback:
        event["exception.stacktrace"] = problem.traceback
    span.add_event("exception", event)
