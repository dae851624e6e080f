"""The inside of a handler process: read a job, run it, say what happened; again and again."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import struct
import sys
import traceback
from typing import BinaryIO

import msgspec

from headrace.app import context as task_context
from headrace.app.tasks import Definition
from headrace.model import trace
from headrace.model.outcomes import Fail, Retry, Snooze
from headrace.model.payload import encode
from headrace.observability import tracing
from headrace.observability.otlp import begin_exporting_too

from .processes import ChildMessage, JobSpec

_LENGTH = struct.Struct(">I")


def main() -> None:
    """Serve jobs until the worker closes the pipe."""
    jobs = sys.stdin.buffer
    # The handler may print: its standard output must not be the pipe that the answers go through.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while header := jobs.read(_LENGTH.size):
        job = msgspec.json.decode(jobs.read(_LENGTH.unpack(header)[0]), type=JobSpec)
        with contextlib.suppress(BrokenPipeError):
            _say(answers, _run(job, answers))


def _run(job: JobSpec, answers: BinaryIO) -> ChildMessage:
    def report_progress(text: str) -> None:
        _say(answers, ChildMessage("progress", text))

    definition: Definition[..., object, object] | None = None
    try:
        definition = _definition(job)
        args, kwargs = definition.signature.convert(job.args, job.kwargs)
        context = task_context.TaskContext(**job.context, report_progress=report_progress)
        task_context.enter(context)
        trace.enter(context.traceparent)
        _begin_exporting()
        tracing.enter(context.traceparent)
        if definition.signature.wants_context:
            args = (context, *args)
        result = definition.function(*args, **kwargs)
        encode("result", result)
        return ChildMessage("result", result)
    except Retry as asked:
        return ChildMessage("retry", asked.after_s, message=str(asked))
    except Fail as asked:
        return ChildMessage("fail", message=str(asked))
    except Snooze as asked:
        return ChildMessage("snooze", asked.after_s)
    except BaseException as error:  # noqa: BLE001 - reported to the worker, which decides
        return ChildMessage(
            "error",
            retriable=definition is None or definition.is_retriable(error),
            type=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
        )


@functools.cache
def _begin_exporting() -> None:
    """Once the handler's module has been imported: it may have set up OpenTelemetry itself."""
    begin_exporting_too(os.environ, "headrace-worker")


def _definition(job: JobSpec) -> Definition[..., object, object]:
    found = importlib.import_module(job.module)
    for part in job.name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Definition):
        raise TypeError(f"{job.module}:{job.name} is not a task; process handlers must be importable by that name")
    return found


def _say(answers: BinaryIO, message: ChildMessage) -> None:
    raw = msgspec.json.encode(message)
    answers.write(_LENGTH.pack(len(raw)) + raw)
    answers.flush()


if __name__ == "__main__":
    main()
