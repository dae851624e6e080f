"""A backend that stays in this process."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headrace.app import context as task_context
from headrace.app.context import TaskContext
from headrace.app.headrace import Headrace
from headrace.app.tasks import Definition, Enqueuer
from headrace.model import trace
from headrace.model.config import QueueConfig
from headrace.model.errors import ResultTimeout, TaskNotFound, UnknownQueue
from headrace.model.outcomes import Problem, Snooze
from headrace.model.payload import decode, encode
from headrace.model.states import TaskState
from headrace.model.task import NewTask, TaskMessage, TaskRecord
from headrace.model.task_rules import check_new_tasks
from headrace.queue.queue import EnqueueResult


class EnqueuedTask(msgspec.Struct, frozen=True):
    """What was enqueued."""

    task_id: str
    queue: str
    type: str
    args: list[Any]
    kwargs: dict[str, Any]
    priority: str
    delay_s: float
    idempotency_key: str


class InlineBox:
    """Collects tasks, and runs them if asked to."""

    def __init__(self, app: Headrace, *, run: bool) -> None:
        self._app = app
        self._run = run
        self._configs = {config.name: config for config in app.declared_queues}
        self._records: dict[str, TaskRecord] = {}
        self._by_key: dict[tuple[str, str], str] = {}
        self.enqueued: list[EnqueuedTask] = []

    # ── for tests ────────────────────────────────────────────────────────────────────────────────────

    def assert_enqueued(self, task: Enqueuer[..., Any], *args: Any, **kwargs: Any) -> EnqueuedTask:
        """At least one task of this kind was enqueued with exactly these arguments; returns the first."""
        wanted = (decode(encode("args", args)), decode(encode("kwargs", kwargs)))
        same_type = [found for found in self.enqueued if found.type == task.type]
        for found in same_type:
            if (found.args, found.kwargs) == wanted:
                return found
        seen = "\n".join(f"  {_call_text(f.type, f.args, f.kwargs)}" for f in same_type) or "  (none)"
        raise AssertionError(f"no {_call_text(task.type, *wanted)} was enqueued; tasks of this type:\n{seen}")

    def assert_not_enqueued(self, task: Enqueuer[..., Any]) -> None:
        """No task of this kind was enqueued."""
        found = [f"  {_call_text(f.type, f.args, f.kwargs)}" for f in self.enqueued if f.type == task.type]
        if found:
            raise AssertionError(f"{len(found)} tasks of type {task.type} were enqueued:\n" + "\n".join(found))

    # ── the backend ──────────────────────────────────────────────────────────────────────────────────

    async def enqueue(self, queue: str, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        config = self._configs.get(queue)
        if config is None:
            raise UnknownQueue("queue", f"{queue!r} is not declared by the app: Headrace(..., queues=[...])")
        check_new_tasks(config, tasks)
        return [await self._enqueue_one(config, task) for task in tasks]

    async def task(self, queue: str, task_id: str) -> TaskRecord:
        if task_id not in self._records:
            raise TaskNotFound(task_id)
        return self._records[task_id]

    async def finished(self, queue: str, task_id: str, timeout_s: float | None) -> TaskRecord:
        record = await self.task(queue, task_id)
        if not record.state.is_terminal:
            # Nothing will run it: waiting any longer would be waiting for ever.
            raise ResultTimeout(task_id, timeout_s or 0.0)
        return record

    async def cancel(self, queue: str, task_ids: Sequence[str]) -> list[str]:
        answers = []
        for task_id in task_ids:
            record = self._records.get(task_id)
            if record is not None and not record.state.is_terminal:
                self._records[task_id] = record = msgspec.structs.replace(record, state=TaskState.CANCELLED)
            answers.append(record.state.value if record is not None else "not_found")
        return answers

    async def position(self, queue: str, task_id: str) -> int:
        record = await self.task(queue, task_id)
        waiting = [r.task_id for r in self._records.values() if r.queue == queue and r.state is TaskState.QUEUED]
        return waiting.index(task_id) + 1 if record.state is TaskState.QUEUED else 0

    async def aclose(self) -> None:
        return None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    async def _enqueue_one(self, config: QueueConfig, task: NewTask) -> EnqueueResult:
        key = (config.name, task.idempotency_key)
        if task.idempotency_key and key in self._by_key:
            return EnqueueResult(self._by_key[key], duplicate=True)
        self._by_key[key] = task.task_id
        message = msgspec.json.decode(task.message, type=TaskMessage)
        level = task.level or config.default_level
        limits = next(candidate for candidate in config.levels if candidate.name == level)
        self.enqueued.append(
            EnqueuedTask(
                task.task_id,
                config.name,
                message.type,
                list(message.args),
                message.kwargs,
                level,
                task.delay_s,
                task.idempotency_key,
            )
        )
        self._records[task.task_id] = TaskRecord(
            task_id=task.task_id,
            queue=config.name,
            type=message.type,
            state=TaskState.SCHEDULED if task.delay_s > 0 else TaskState.QUEUED,
            priority=level,
            effective_priority=level,
            capabilities=tuple(filter(None, task.capabilities.split(","))),
            args=list(message.args),
            kwargs=message.kwargs,
            traceparent=trace.of_task(task.task_id, message.traceparent),
            retry_count=0,
            max_retries=limits.max_retries if task.max_retries is None else task.max_retries,
            timeout_s=task.timeout_s or limits.timeout_s,
            created_at_s=time.time(),
            started_at_s=None,
            finished_at_s=None,
            worker=None,
            result=None,
            problem=None,
            reason="",
            progress=None,
            cancel_requested=False,
            history=(),
        )
        if self._run and message.type in self._app.tasks:
            await self._run_to_the_end(self._app.tasks[message.type], task.task_id)
        return EnqueueResult(task.task_id)

    async def _run_to_the_end(self, definition: Definition[Any, Any, Any], task_id: str) -> None:
        """All attempts at once: a test does not wait for backoffs."""
        while not self._records[task_id].state.is_terminal:
            record = self._records[task_id]
            try:
                text = encode("result", await self._call(definition, record))
                self._update(task_id, state=TaskState.COMPLETED, result=decode(text))
            except Snooze:
                self._update(task_id, state=TaskState.SCHEDULED)
                return
            except Exception as error:  # noqa: BLE001 - a handler may raise anything
                if not definition.is_retriable(error):
                    self._update(task_id, state=TaskState.FAILED, problem=_problem(error))
                elif record.retry_count >= record.max_retries:
                    self._update(
                        task_id, state=TaskState.DEAD_LETTER, problem=_problem(error), reason="max_retries_exceeded"
                    )
                else:
                    self._update(task_id, retry_count=record.retry_count + 1, problem=_problem(error))

    async def _call(self, definition: Definition[Any, Any, Any], record: TaskRecord) -> Any:
        def report_progress(text: str) -> None:
            self._update(record.task_id, progress=decode(text))

        context = TaskContext(
            task_id=record.task_id,
            type=record.type,
            queue=record.queue,
            tenant=self._app.tenant,
            attempt=record.retry_count + 1,
            timeout_s=record.timeout_s,
            level=record.effective_priority,
            traceparent=record.traceparent,
            report_progress=report_progress,
        )
        args, kwargs = definition.signature.convert(record.args, record.kwargs)
        if definition.signature.wants_context:
            args = (context, *args)
        context_token, trace_token = task_context.enter(context), trace.enter(record.traceparent)
        try:
            result = definition.function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            trace.leave(trace_token)
            task_context.leave(context_token)

    def _update(self, task_id: str, **changes: Any) -> None:
        self._records[task_id] = msgspec.structs.replace(self._records[task_id], **changes)


@contextlib.contextmanager
def inline(app: Headrace, *, run: bool = True) -> Iterator[InlineBox]:
    """Keep everything ``app`` enqueues in this process for the length of the block."""
    box = InlineBox(app, run=run)
    app.replace_backend(box)
    try:
        yield box
    finally:
        app.replace_backend(None)


def _problem(error: BaseException) -> Problem:
    return Problem(type(error).__name__, str(error))


def _call_text(type_name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    parts = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return f"{type_name}({', '.join(parts)})"
