"""The decorated function: still callable as itself, and able to enqueue itself.

::

    @app.task(queue="email", priority="high")
    async def send(to: str, body: str) -> dict: ...

    await send("a@b.c", "hi")                        # runs here, like any function
    await send.enqueue("a@b.c", body="hi")           # runs in a worker
    await send.options(delay_s=60).enqueue("a@b.c", body="hi")
    await app.enqueue_many([send.call(to, "hi") for to in everyone])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack

import msgspec

from headrace.model.errors import InvalidArguments, InvalidPayload
from headrace.model.ids import new_task_id
from headrace.model.outcomes import Fail, Retry
from headrace.model.payload import encode
from headrace.model.task import NewTask, TaskMessage
from headrace.observability.tracing import EnqueueSpans

from .arguments import Signature
from .context import TaskContext
from .handle import TaskHandle
from .options import EnqueueOptions, OptionArguments

if TYPE_CHECKING:
    from .blocking import BlockingTask
    from .headrace import Headrace

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

RunIn = Literal["loop", "thread", "process"]
"""Where a handler runs: in the worker's event loop, in a thread, or in a process of its own."""


class TaskCall(msgspec.Struct, frozen=True):
    """A task that is ready to be enqueued. Made by ``task.call(...)`` for `Headrace.enqueue_many`."""

    type: str
    options: EnqueueOptions
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def to_new_task(self, spans: EnqueueSpans) -> NewTask:
        """With an id of its own and its arguments as JSON. ``spans`` are those of the enqueue."""
        options = self.options
        traceparent = spans.begin(options.queue, self.type, options.traceparent)
        message = TaskMessage(self.type, self.args, self.kwargs, traceparent)
        return NewTask(
            new_task_id(),
            encode("payload", message),
            options.priority,
            options.capabilities,
            options.delay_s,
            options.max_retries,
            options.timeout_s,
            options.idempotency_key,
        )


class Enqueuer(Generic[P, T]):
    """A kind of task with a set of options. What `Task.options` returns."""

    def __init__(self, app: Headrace, type: str, options: EnqueueOptions, signature: Signature | None) -> None:
        self._app = app
        self._signature = signature
        self.type = type
        self.enqueue_options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall:
        """The task, ready for `Headrace.enqueue_many`. Arguments that do not fit are refused here."""
        if self._signature is not None:
            self._signature.check_call(args, kwargs)
        return TaskCall(self.type, self.enqueue_options, args, kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[T]:
        """Put the task into its queue. When this returns, the task is stored."""
        queue = self.enqueue_options.queue
        call = self.call(*args, **kwargs)
        with EnqueueSpans() as spans:
            (result,) = await self._app.backend().enqueue(queue, [call.to_new_task(spans)])
            spans.stored(queue, [result.task_id])
        return TaskHandle(self._app, queue, result.task_id, duplicate=result.duplicate)

    def options(self, **changes: Unpack[OptionArguments]) -> Enqueuer[P, T]:
        """The same task with other options, for one or more calls."""
        return Enqueuer(self._app, self.type, self.enqueue_options.changed(changes), self._signature)

    @property
    def blocking(self) -> BlockingTask[P, T]:
        """The same verbs for code without an event loop."""
        from .blocking import BlockingTask

        return BlockingTask(self._app.blocking, self)


class Definition(Enqueuer[P, T], Generic[P, R, T]):
    """A registered handler. `Task` and `ContextTask` differ only in how they are called."""

    def __init__(
        self,
        app: Headrace,
        function: Callable[..., R],
        signature: Signature,
        *,
        type: str,
        options: EnqueueOptions,
        retry_on: tuple[type[BaseException], ...],
        run_in: RunIn | None,
    ) -> None:
        super().__init__(app, type, options, signature)
        self.signature = signature
        is_async = inspect.iscoroutinefunction(function)
        if run_in == "loop" and not is_async:
            raise TypeError(f"{type}: run_in='loop' is for async functions; this one would block every other task")
        if run_in in ("thread", "process") and is_async:
            raise TypeError(f"{type}: run_in={run_in!r} is for plain functions; async ones run in the loop")
        self.function = function
        self.retry_on = retry_on
        self.run_in: RunIn = run_in or ("loop" if is_async else "thread")
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def is_retriable(self, error: BaseException) -> bool:
        """Whether another attempt may help after the handler raised ``error``."""
        if isinstance(error, (Fail, InvalidArguments, InvalidPayload)):
            return False  # said to be hopeless, or the same input would fail the same way
        # Outside of Exception (SystemExit and the like) nobody meant the task to fail for good.
        return isinstance(error, (Retry, *self.retry_on)) or not isinstance(error, Exception)


class Task(Definition[P, R, T]):
    """A handler that takes only its own arguments."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it had not been decorated."""
        return self.function(*args, **kwargs)


class ContextTask(Definition[P, R, T]):
    """A handler whose first parameter is its `TaskContext`; the worker fills it in."""

    def __call__(self, context: TaskContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, with a context of the caller's making."""
        return self.function(context, *args, **kwargs)
