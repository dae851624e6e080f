"""The same verbs for code without an event loop: ``app.blocking`` and ``task.blocking``.

One background thread runs an event loop for all blocking calls of an app, so there is one implementation
of everything. The thread is started by the first call, and anew in a forked child. Only an enqueue of one task, which
web servers do all day, tries a shorter way first (`headrace.queue.direct`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from headrace.model.figures import QueueStats, WorkerRecord
from headrace.model.states import TaskState
from headrace.model.task import NewTask, TaskRecord
from headrace.observability.tracing import EnqueueSpans
from headrace.queue.direct import DirectLine
from headrace.queue.keys import QueueKeys
from headrace.queue.queue import EnqueueResult

from .handle import TaskHandle
from .options import OptionArguments
from .tasks import Enqueuer, TaskCall

if TYPE_CHECKING:
    from .headrace import Headrace

P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    """Runs coroutines of blocking callers in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` to its end and return its result."""
        loop = self._running_loop()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call was made from inside a blocking call's own thread")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # a KeyboardInterrupt must not leave the call running
            raise

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # Threads do not survive a fork; a child of a preforking server starts its own.
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-blocking", daemon=True)
                self._thread.start()
            return self._loop


class BlockingHandle(Generic[T]):
    """`TaskHandle` for blocking code."""

    def __init__(self, portal: Portal, handle: TaskHandle[T]) -> None:
        self._portal = portal
        self._handle = handle
        self.queue = handle.queue
        self.id = handle.id
        self.duplicate = handle.duplicate

    def result(self, timeout_s: float | None = None) -> T:
        """See `TaskHandle.result`."""
        return self._portal.call(self._handle.result(timeout_s))

    def record(self) -> TaskRecord:
        """See `TaskHandle.record`."""
        return self._portal.call(self._handle.record())

    def state(self) -> TaskState:
        """See `TaskHandle.state`."""
        return self._portal.call(self._handle.state())

    def cancel(self) -> str:
        """See `TaskHandle.cancel`."""
        return self._portal.call(self._handle.cancel())

    def queue_position(self) -> int:
        """See `TaskHandle.queue_position`."""
        return self._portal.call(self._handle.queue_position())


class BlockingTask(Generic[P, T]):
    """`Enqueuer` for blocking code."""

    def __init__(self, app: BlockingHeadrace, enqueuer: Enqueuer[P, T]) -> None:
        self._app = app
        self._enqueuer = enqueuer

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[T]:
        """See `Enqueuer.enqueue`."""
        return self._app.enqueue(self._enqueuer.call(*args, **kwargs))

    def options(self, **changes: Unpack[OptionArguments]) -> BlockingTask[P, T]:
        """See `Enqueuer.options`."""
        return BlockingTask(self._app, self._enqueuer.options(**changes))


class BlockingHeadrace:
    """`Headrace` for blocking code. Every verb is that of `Headrace`, and waits for its answer."""

    def __init__(self, app: Headrace) -> None:
        self._app = app
        self._portal = Portal()
        self._line = DirectLine(app.settings)
        self._known_queues: dict[str, QueueKeys] = {}
        """Queues that a call has come through to: the server has been checked, and the queue is defined."""

    def enqueue(self, call: TaskCall) -> BlockingHandle[Any]:
        """Enqueue one task. ``task.blocking.enqueue(...)`` is the same in short."""
        queue = call.options.queue
        with EnqueueSpans() as spans:
            task = call.to_new_task(spans)
            known = self._known_queues.get(queue) if self._app.uses_redis else None
            result = self._line.enqueue(known, task) if known is not None else None
            if result is None:
                result = self._portal.call(self._enqueue(queue, task))
            spans.stored(queue, [result.task_id])
        return BlockingHandle(self._portal, TaskHandle(self._app, queue, result.task_id, duplicate=result.duplicate))

    async def _enqueue(self, queue: str, task: NewTask) -> EnqueueResult:
        (result,) = await self._app.backend().enqueue(queue, [task])
        self._known_queues[queue] = QueueKeys(self._app.tenant, queue)
        return result

    def enqueue_many(self, calls: Sequence[TaskCall]) -> list[BlockingHandle[Any]]:
        return [BlockingHandle(self._portal, handle) for handle in self._portal.call(self._app.enqueue_many(calls))]

    def handle(self, queue: str, task_id: str) -> BlockingHandle[Any]:
        return BlockingHandle(self._portal, self._app.handle(queue, task_id))

    def find(self, task_id: str) -> TaskRecord:
        return self._portal.call(self._app.find(task_id))

    def cancel(self, queue: str, task_ids: Sequence[str]) -> list[str]:
        return self._portal.call(self._app.cancel(queue, task_ids))

    def queue_names(self) -> list[str]:
        return self._portal.call(self._app.queue_names())

    def stats(self, queue: str) -> QueueStats:
        return self._portal.call(self._app.stats(queue))

    def workers(self, queue: str) -> list[WorkerRecord]:
        return self._portal.call(self._app.workers(queue))

    def dead_letters(self, queue: str, *, offset: int = 0, limit: int = 100) -> list[TaskRecord]:
        return self._portal.call(self._app.dead_letters(queue, offset=offset, limit=limit))

    def replay(
        self, queue: str, task_ids: Sequence[str] = (), *, limit: int = 100
    ) -> tuple[list[str], list[tuple[str, str]]]:
        return self._portal.call(self._app.replay(queue, task_ids, limit=limit))

    def pause(self, queue: str) -> None:
        self._portal.call(self._app.pause(queue))

    def resume(self, queue: str) -> None:
        self._portal.call(self._app.resume(queue))

    def drain(self, queue: str, workers: Sequence[str], *, idle_s: float = 0.0, force: bool = False) -> list[str]:
        return self._portal.call(self._app.drain(queue, workers, idle_s=idle_s, force=force))

    def undrain(self, queue: str, workers: Sequence[str]) -> list[str]:
        return self._portal.call(self._app.undrain(queue, workers))

    def close(self) -> None:
        """Close the connections of blocking calls and stop their thread."""
        self._line.close()
        self._portal.call(self._app.aclose())
        self._portal.close()
