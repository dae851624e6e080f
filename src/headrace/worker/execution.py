"""Running one task: from the message to a settlement."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from functools import partial
from typing import Any

import msgspec
import structlog

from headrace.app import context as task_context
from headrace.app.context import TaskContext
from headrace.app.headrace import Headrace
from headrace.app.tasks import Definition
from headrace.model import trace
from headrace.model.config import QueueConfig
from headrace.model.outcomes import Outcome, Problem, Retry, Settlement, Snooze
from headrace.model.payload import check_size, encode
from headrace.model.task import TaskMessage
from headrace.observability import tracing

from .metrics import WorkerMetrics
from .processes import HandlerProcesses, JobSpec, RemoteError
from .running import RunningTask, StopReason
from .threads import HandlerThreads

_MAX_MESSAGE_CHARS = 2_000
_MAX_TRACEBACK_CHARS = 8_000

_log = structlog.get_logger(__name__)
_decode_message = msgspec.json.Decoder(TaskMessage).decode


class Executor:
    """Runs handlers where they want to run."""

    def __init__(self, app: Headrace, worker: str, concurrency: int, metrics: WorkerMetrics) -> None:
        self._app = app
        self._worker = worker
        self._metrics = metrics
        self._tracer = tracing.tracer()
        self._threads = HandlerThreads(concurrency)
        self._processes = HandlerProcesses(concurrency)

    def prepare(self, task: RunningTask) -> None:
        """Read the message, and find out where its handler runs. What cannot be read is reported by `run`."""
        with contextlib.suppress(msgspec.DecodeError):
            task.message = _decode_message(task.claimed.message)
            definition = self._app.tasks.get(task.message.type)
            if definition is not None:
                task.place = definition.run_in

    async def run(self, task: RunningTask, config: QueueConfig) -> Settlement | None:
        """Run the task's handler; None when there is nothing to settle any more."""
        task.has_started = True
        if task.stop_reason is not None:
            return _stopped(task)
        try:
            message = task.message or _decode_message(task.claimed.message)
            if self._tracer is None:
                traceparent = trace.of_task(task.claimed.task_id, message.traceparent)
            else:
                traceparent = self._begin_spans(self._tracer, task, message)
            trace.enter(traceparent)
            definition = self._app.tasks.get(message.type)
            if definition is None:
                self._metrics.unknown(task.queue)
                # During a rollout another worker may know it, so this is worth another attempt.
                problem = _problem_json("UnknownTaskType", f"no handler for {message.type!r} here")
                return _settlement(task, Outcome.RETRY, problem)
            context = self._enter_context(task, message, traceparent)
            if definition.run_in == "process":
                job = _job(definition, message, context)
                result = await self._processes.run(job, context.report_progress, begin=task.begin)
            else:
                args, kwargs = definition.signature.convert(message.args, message.kwargs)
                if definition.signature.wants_context:
                    args = (context, *args)
                if definition.run_in == "loop":
                    task.begin()
                    result = await definition.function(*args, **kwargs)
                else:
                    function = partial(definition.function, *args, **kwargs)
                    result = await self._threads.run(function, begin=task.begin)
            text = encode("result", result)
            check_size("result", text, config.max_payload_bytes)
            return _settlement(task, Outcome.COMPLETED, text)
        except asyncio.CancelledError:
            return _stopped(task)
        except Retry as asked:
            return _settlement(task, Outcome.RETRY, _problem_json("Retry", str(asked)), asked.after_s)
        except Snooze as asked:
            return _settlement(task, Outcome.SNOOZED, "", asked.after_s)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, even SystemExit
            return self._failed(task, error)

    def _begin_spans(self, tracer: tracing.Tracer, task: RunningTask, message: TaskMessage) -> str:
        """The trace context that this attempt runs in, from here on."""
        claimed = task.claimed
        spans = tracing.AttemptSpans(
            tracer,
            worker=self._worker,
            queue=task.queue,
            task_id=claimed.task_id,
            task_type=message.type,
            priority=claimed.level,
            attempt=claimed.attempt,
            carried=message.traceparent,
            waited_s=claimed.waited_s,
            claimed_ago_s=time.monotonic() - task.claimed_monotonic_s,
        )
        spans.enter()
        if spans.are_recorded:
            task.spans = spans
        return spans.traceparent

    def _enter_context(self, task: RunningTask, message: TaskMessage, traceparent: str) -> TaskContext:
        claimed = task.claimed
        context = task.context = TaskContext(
            task_id=claimed.task_id,
            type=message.type,
            queue=task.queue,
            tenant=self._app.tenant,
            attempt=claimed.attempt,
            timeout_s=claimed.timeout_s,
            level=claimed.level,
            traceparent=traceparent,
            report_progress=task.progress.append,
        )
        task_context.enter(context)
        return context

    def _failed(self, task: RunningTask, error: BaseException) -> Settlement:
        problem = _describe(error)
        _log.warning(
            "task attempt failed",
            task_id=task.claimed.task_id,
            queue=task.queue,
            attempt=task.claimed.attempt,
            error_type=problem.type,
            error=problem.message,
        )
        outcome = Outcome.RETRY if self._is_retriable(task, error) else Outcome.FAILED
        return _settlement(task, outcome, msgspec.json.encode(problem).decode())

    def _is_retriable(self, task: RunningTask, error: BaseException) -> bool:
        if task.context is None:
            return False  # the message itself could not be read
        if isinstance(error, RemoteError):
            return error.remote.retriable
        return self._app.tasks[task.context.type].is_retriable(error)

    async def aclose(self) -> None:
        """Let go of threads and processes."""
        self._threads.close()
        await self._processes.aclose()


def _settlement(task: RunningTask, outcome: Outcome, body: str = "", after_s: float | None = None) -> Settlement:
    return Settlement(task.claimed.task_id, task.claimed.token, outcome, body, after_s)


def _stopped(task: RunningTask) -> Settlement | None:
    if task.stop_reason is StopReason.CANCELLED:
        return _settlement(task, Outcome.CANCELLED)
    if task.stop_reason is StopReason.TIMED_OUT:
        timeout_s = task.claimed.timeout_s
        problem = _problem_json("TaskTimeout", f"the attempt ran past its timeout of {timeout_s:g} s")
        return _settlement(task, Outcome.RETRY, problem)
    if task.stop_reason is StopReason.LEASE_LOST:
        return None
    # The worker goes, or the handler cancelled itself; either way nothing was decided about the task.
    return _settlement(task, Outcome.HANDED_BACK)


def _job(definition: Definition[Any, Any, Any], message: TaskMessage, context: TaskContext) -> JobSpec:
    return JobSpec(
        module=definition.function.__module__,
        name=definition.function.__qualname__,
        args=list(message.args),
        kwargs=message.kwargs,
        context={
            "task_id": context.task_id,
            "type": context.type,
            "queue": context.queue,
            "tenant": context.tenant,
            "attempt": context.attempt,
            "timeout_s": context.timeout_s,
            "level": context.level,
            "traceparent": context.traceparent,
        },
    )


def _problem_json(type_name: str, message: str) -> str:
    return msgspec.json.encode(Problem(type_name, message[:_MAX_MESSAGE_CHARS])).decode()


def _describe(error: BaseException) -> Problem:
    if isinstance(error, RemoteError):
        remote = error.remote
        return Problem(remote.type, _printable(remote.message), remote.traceback[-_MAX_TRACEBACK_CHARS:])
    text = "".join(traceback.format_exception(error))
    return Problem(type(error).__name__, _printable(str(error)), _printable(text, _MAX_TRACEBACK_CHARS, end=True))


def _printable(text: str, max_chars: int = _MAX_MESSAGE_CHARS, *, end: bool = False) -> str:
    """Bounded, and without what JSON cannot carry: an error message may hold anything."""
    clipped = text[-max_chars:] if end else text[:max_chars]
    return clipped.encode("utf-8", "replace").decode()
