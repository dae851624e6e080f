"""`Headrace`: the object a program is built around."""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from headrace.model.config import QueueConfig
from headrace.model.errors import InvalidConfig
from headrace.model.figures import QueueStats, WorkerRecord
from headrace.model.names import check_name, check_task_type
from headrace.model.task import NewTask, TaskRecord
from headrace.model.task_rules import field_of
from headrace.observability.tracing import EnqueueSpans
from headrace.queue.settings import RedisSettings

from .arguments import Signature
from .backend import Backend, RedisBackend
from .blocking import BlockingHeadrace
from .context import TaskContext
from .handle import TaskHandle
from .options import EnqueueOptions, OptionArguments
from .tasks import ContextTask, Definition, Enqueuer, RunIn, Task, TaskCall

P = ParamSpec("P")
T = TypeVar("T")


class TaskDecorator(Protocol):
    """What ``app.task(...)`` returns. The overloads keep the handler's own types.

    They overlap on purpose: an async handler is also a plain one that returns a coroutine. The first that
    fits counts.
    """

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, T]], /
    ) -> ContextTask[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, P], T], /) -> ContextTask[P, T, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class Headrace:
    """Tasks, and the queues of one tenant that they go to.

    ``redis`` is a URL (``redis://``, ``rediss://``, ``redis+sentinel://``, ``redis+cluster://``, …) or
    `RedisSettings`. Without it, ``HEADRACE_REDIS_URL`` says where Redis is, and without ``tenant``, ``HEADRACE_TENANT``
    whose queues are meant: a WorkerPool's pods have both. Nothing is opened until the first call. The object may
    be used from several event loops and threads: each event loop has connections of its own. Close them with
    ``await app.aclose()`` or ``async with app:``.
    """

    def __init__(
        self,
        redis: str | RedisSettings | None = None,
        *,
        tenant: str | None = None,
        queues: Iterable[QueueConfig] = (),
    ) -> None:
        if redis is None:
            redis = RedisSettings.from_environment()
        self.settings = redis if isinstance(redis, RedisSettings) else RedisSettings.from_url(redis)
        if tenant is None:
            tenant = os.environ.get("HEADRACE_TENANT") or "default"
        self.tenant = check_name("tenant", tenant)
        self.declared_queues = tuple(queues)
        names = [config.name for config in self.declared_queues]
        for name in names:
            if names.count(name) > 1:
                raise InvalidConfig("queues", f"{name!r} is declared twice")
        self.tasks: dict[str, Definition[Any, Any, Any]] = {}
        self._backends: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, RedisBackend] = weakref.WeakKeyDictionary()
        self._replacement: Backend | None = None

    # ── defining ─────────────────────────────────────────────────────────────────────────────────────

    def task(
        self,
        *,
        queue: str,
        priority: str | None = None,
        max_retries: int | None = None,
        timeout_s: float | None = None,
        required_capabilities: Iterable[str] = (),
        retry_on: tuple[type[BaseException], ...] = (Exception,),
        run_in: RunIn | None = None,
        name: str | None = None,
    ) -> TaskDecorator:
        """Make a function a task.

        What is not given here is as the queue's level says. ``retry_on``: errors worth another attempt;
        any other fails the task for good. ``run_in``: async functions run in the worker's loop, plain ones
        in a thread, or with ``"process"`` in a process of their own. ``name``: the task's type, by default
        the function's name; producers and workers must agree on it.
        """
        given = {
            "queue": queue,
            "priority": priority,
            "max_retries": max_retries,
            "timeout_s": timeout_s,
            "required_capabilities": tuple(required_capabilities),
        }
        options = _options({key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]

        def register(function: Callable[..., Any]) -> Definition[Any, Any, Any]:
            type_name = check_task_type("name", name or function.__name__)
            if type_name in self.tasks:
                raise InvalidConfig(
                    "name", f"a task {type_name!r} is already registered; give one of them a name of its own"
                )
            signature = Signature(function)
            kind = ContextTask if signature.wants_context else Task
            definition: Definition[Any, Any, Any] = kind(
                self, function, signature, type=type_name, options=options, retry_on=retry_on, run_in=run_in
            )
            self.tasks[type_name] = definition
            return definition

        return register  # type: ignore[return-value]

    def remote(self, type: str, *, queue: str, **changes: Any) -> Enqueuer[..., Any]:
        """A task whose handler lives in another program: enqueue it by its type's name."""
        options = _options({"queue": queue, **changes})  # type: ignore[typeddict-item]
        return Enqueuer(self, check_task_type("type", type), options, None)

    # ── enqueueing ───────────────────────────────────────────────────────────────────────────────────

    async def enqueue_many(self, calls: Sequence[TaskCall]) -> list[TaskHandle[Any]]:
        """Enqueue many tasks, thousands per round trip. Per queue it is all or nothing."""
        by_queue: dict[str, tuple[list[int], list[NewTask]]] = {}
        handles: dict[int, TaskHandle[Any]] = {}
        with EnqueueSpans() as spans:
            for index, call in enumerate(calls):
                if not isinstance(call, TaskCall):
                    raise TypeError(f"{field_of('call', index, len(calls))}: expected task.call(...), not {call!r:.80}")
                indices, tasks = by_queue.setdefault(call.options.queue, ([], []))
                indices.append(index)
                tasks.append(call.to_new_task(spans))
            for queue, (indices, tasks) in by_queue.items():
                results = await self.backend().enqueue(queue, tasks)
                spans.stored(queue, [result.task_id for result in results])
                for index, result in zip(indices, results, strict=True):
                    handles[index] = TaskHandle(self, queue, result.task_id, duplicate=result.duplicate)
        return [handles[index] for index in range(len(calls))]

    def handle(self, queue: str, task_id: str) -> TaskHandle[Any]:
        """A handle on a task whose id was kept elsewhere."""
        return TaskHandle(self, check_name("queue", queue), task_id)

    # ── looking and steering ─────────────────────────────────────────────────────────────────────────

    async def find(self, task_id: str) -> TaskRecord:
        """The record of a task in any of the tenant's queues."""
        return await self.redis_backend().find(task_id)

    async def cancel(self, queue: str, task_ids: Sequence[str]) -> list[str]:
        """Cancel tasks; see `TaskHandle.cancel` for the answers."""
        return await self.backend().cancel(queue, task_ids)

    async def queue_names(self) -> list[str]:
        """The tenant's queues."""
        return await self.redis_backend().queue_names()

    async def stats(self, queue: str) -> QueueStats:
        """Depth, age, workers, throughput and counters of a queue."""
        return await (await self.redis_backend().inspector(queue)).stats()

    async def workers(self, queue: str) -> list[WorkerRecord]:
        """The workers of a queue."""
        return await (await self.redis_backend().inspector(queue)).workers()

    async def dead_letters(self, queue: str, *, offset: int = 0, limit: int = 100) -> list[TaskRecord]:
        """Dead letters, oldest first."""
        return await (await self.redis_backend().inspector(queue)).dead_letters(offset=offset, limit=limit)

    async def replay(
        self, queue: str, task_ids: Sequence[str] = (), *, limit: int = 100
    ) -> tuple[list[str], list[tuple[str, str]]]:
        """Requeue dead letters: those named, or the oldest. Returns those replayed, and (id, state) of the rest."""
        return await (await self.redis_backend().queue(queue)).replay(task_ids, limit=limit)

    async def pause(self, queue: str) -> None:
        """Hand out nothing until `resume`. Running tasks go on; enqueueing works."""
        await (await self.redis_backend().queue(queue)).pause()

    async def resume(self, queue: str) -> None:
        """Hand out tasks again."""
        await (await self.redis_backend().queue(queue)).resume()

    async def drain(self, queue: str, workers: Sequence[str], *, idle_s: float = 0.0, force: bool = False) -> list[str]:
        """Stop workers from claiming if they have been idle for ``idle_s`` (with ``force``: in any case)."""
        return await (await self.redis_backend().queue(queue)).drain(workers, idle_s=idle_s, force=force)

    async def undrain(self, queue: str, workers: Sequence[str]) -> list[str]:
        """Let drained workers claim again."""
        return await (await self.redis_backend().queue(queue)).undrain(workers)

    @functools.cached_property
    def blocking(self) -> BlockingHeadrace:
        """The same verbs for code without an event loop."""
        return BlockingHeadrace(self)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────

    def backend(self) -> Backend:
        """Where this event loop's tasks go."""
        return self._replacement or self.redis_backend()

    @property
    def uses_redis(self) -> bool:
        """Whether tasks go to Redis, and are not kept in this process for a test."""
        return self._replacement is None

    def redis_backend(self) -> RedisBackend:
        """This event loop's connection to Redis."""
        loop = asyncio.get_running_loop()
        backend = self._backends.get(loop)
        if backend is None:
            backend = self._backends[loop] = self.new_redis_backend()
        return backend

    def new_redis_backend(self) -> RedisBackend:
        """A connection of the caller's own, to be closed by the caller."""
        return RedisBackend(self.settings, self.tenant, self.declared_queues)

    def replace_backend(self, backend: Backend | None) -> None:
        """Send tasks elsewhere (see `headrace.testing`); None undoes it."""
        self._replacement = backend

    async def aclose(self) -> None:
        """Close this event loop's connections."""
        backend = self._backends.pop(asyncio.get_running_loop(), None)
        if backend is not None:
            await backend.aclose()

    async def __aenter__(self) -> Headrace:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _options(given: OptionArguments) -> EnqueueOptions:
    return EnqueueOptions(queue="").changed(given)
