"""Putting the roles together: start, work, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterable, Iterator

import structlog

import headrace
from headrace.app.backend import RedisBackend
from headrace.app.headrace import Headrace
from headrace.model.config import QueueConfig
from headrace.model.errors import InvalidConfig, UnknownQueue
from headrace.model.names import capability_set, check_name
from headrace.model.outcomes import Outcome, Settlement
from headrace.queue.cancelling import cancel_and_wait
from headrace.queue.queue import Queue
from headrace.queue.waker import Waker

from .canceller import listen_for_cancellations
from .execution import Executor
from .health import Health
from .health_port import listen
from .heartbeat import Heartbeat
from .identity import WorkerIdentity, new_worker_id
from .janitor import keep_healthy
from .metrics import WorkerMetrics
from .pool import membership
from .processor import Processor
from .running import RunningTasks, StopReason
from .slots import Slots
from .timekeeper import Timekeeper

DEFAULT_CONCURRENCY = 5
DEFAULT_GRACE_S = 30.0
_INTRODUCTIONS = 10
_INTRODUCTION_PAUSE_S = 0.5
_STOPPING_S = 2.0
"""How long a handler that was told to stop may take to do so."""
_FLUSH_S = 10.0
"""How long the last settlements may take to reach Redis. After that their leases run out by themselves."""

_log = structlog.get_logger(__name__)


class Worker:
    """Runs an app's tasks. ``await worker.run()`` returns after a drain.

    The drain has two steps: nothing new is claimed and running tasks get ``grace_s`` to finish; what
    remains is stopped and handed back, without spending an attempt. A second signal skips the grace.
    """

    def __init__(
        self,
        app: Headrace,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        capabilities: Iterable[str] = (),
        grace_s: float = DEFAULT_GRACE_S,
        health_address: tuple[str, int] | None = None,
        health_listener: socket.socket | None = None,
        worker_id: str | None = None,
    ) -> None:
        """``health_listener`` is a socket that listens already, in place of an address."""
        if concurrency < 1:
            raise InvalidConfig("concurrency", f"is {concurrency}; a worker runs at least one task at a time")
        if grace_s < 0:
            raise InvalidConfig("grace_s", f"is {grace_s:g}; it cannot be negative")
        self._app = app
        self._queue_names = _chosen_queues(app, queues)
        self._grace_s = grace_s
        self._health_address = health_address
        self._health_listener = health_listener
        self.identity = WorkerIdentity(
            worker=check_name("worker_id", worker_id or new_worker_id()),
            capacity=concurrency,
            capabilities=capability_set("capabilities", capabilities),
            version=headrace.__version__,
            host=socket.gethostname(),
        )
        self.health = Health()
        self._slots = Slots(concurrency)
        self._running = RunningTasks()
        self._metrics = WorkerMetrics(
            membership(os.environ, app.tenant), concurrency, lambda: len(self._running.unfinished())
        )
        self._configs: dict[str, QueueConfig] = {}
        self._drain_asked = asyncio.Event()
        self._hurry_asked = asyncio.Event()

    def stop(self) -> None:
        """Begin the drain; called again, cut its grace short."""
        if self._drain_asked.is_set():
            self._hurry_asked.set()
        self._drain_asked.set()

    async def run(self) -> None:
        """Work until `stop` is called or a SIGTERM or SIGINT arrives."""
        # Not the app's own connection, which handlers use: another worker in this loop may share that one.
        backend = self._app.new_redis_backend()
        try:
            # From the very beginning: the first process of a container does not die of a SIGTERM that nobody handles.
            with self._signals():
                await self._run_on(backend)
        finally:
            await backend.aclose()

    async def _run_on(self, backend: RedisBackend) -> None:
        queues = [await backend.queue(name) for name in self._queue_names]
        for queue in queues:
            await self._introduce(backend, queue)
        heartbeat = Heartbeat(
            self._app, self._configs, self.identity, self._running, self.health, self._metrics, self._listener()
        )
        executor = Executor(self._app, self.identity.worker, self.identity.capacity, self._metrics)
        timekeeper = Timekeeper(self._running)
        processors = [
            Processor(
                queue,
                self._configs,
                self.identity.worker,
                waker=Waker(backend.connection, queue.keys, self.identity.worker),
                slots=self._slots,
                running=self._running,
                timekeeper=timekeeper,
                executor=executor,
                health=self.health,
                metrics=self._metrics,
                register=self._register,
                is_only_queue=len(queues) == 1,
            )
            for queue in queues
        ]
        heartbeat.start()
        loops = [asyncio.create_task(processor.run(), name=f"claim {processor.queue.name}") for processor in processors]
        helpers = [asyncio.create_task(listen_for_cancellations(backend.connection, q, self._running)) for q in queues]
        helpers.append(asyncio.create_task(keep_healthy(queues), name="janitor"))
        helpers.append(asyncio.create_task(heartbeat.ended(), name="heartbeat"))
        _log.info(
            "worker started", worker=self.identity.worker, queues=self._queue_names, tasks=sorted(self._app.tasks)
        )
        try:
            await self._until_asked_or_broken(loops + helpers)
            await self._drain(heartbeat, processors, loops)
        finally:
            await cancel_and_wait(*helpers, *loops)
            timekeeper.close()
            await heartbeat.stop()
            await executor.aclose()
            await self._app.aclose()
        _log.info("worker stopped", worker=self.identity.worker)

    def _listener(self) -> socket.socket | None:
        if self._health_listener is None and self._health_address is not None:
            return listen(*self._health_address)
        return self._health_listener

    async def _introduce(self, backend: RedisBackend, queue: Queue) -> None:
        """Learn what the queue is like, and register.

        A failover may forget a definition that was confirmed just before it, so it may have to be published again: by
        this app, or by the operator, which takes a moment.
        """
        for tries_left in reversed(range(_INTRODUCTIONS)):
            try:
                self._configs[queue.name] = await backend.config(queue.name)
                return await self._register(queue)
            except UnknownQueue:
                backend.forget(queue.name)
                if tries_left == 0:
                    raise
            await asyncio.sleep(_INTRODUCTION_PAUSE_S)

    async def _register(self, queue: Queue) -> None:
        await queue.heartbeat(**self.identity.fields())

    async def _until_asked_or_broken(self, loops: list[asyncio.Task[None]]) -> None:
        """A loop that ends by itself is a defect: let it end the worker loudly."""
        asked = asyncio.create_task(self._drain_asked.wait())
        done, _ = await asyncio.wait({asked, *loops}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        for task in done - {asked}:
            task.result()
            raise RuntimeError(f"{task.get_name()} ended unexpectedly")

    async def _drain(self, heartbeat: Heartbeat, processors: list[Processor], loops: list[asyncio.Task[None]]) -> None:
        self.health.draining = True
        heartbeat.drain()
        for processor in processors:
            processor.stop_claiming()
        _log.info(
            "draining", worker=self.identity.worker, running=len(self._running.unfinished()), grace_s=self._grace_s
        )
        await self._wait_for_handlers(self._grace_s)

        leftover = self._running.unfinished()
        for task in leftover:
            task.stop(StopReason.SHUTDOWN)
        if leftover:
            self._hurry_asked.clear()
            await self._wait_for_handlers(_STOPPING_S)
        by_queue = {processor.queue.name: processor for processor in processors}
        for task in self._running.unfinished():
            # It does not listen; the process is about to end under it, so the task goes back all the same.
            handed_back = Settlement(task.claimed.task_id, task.claimed.token, Outcome.HANDED_BACK)
            by_queue[task.queue].settler.add(task, handed_back)
        if leftover:
            _log.info("handed back unfinished tasks", worker=self.identity.worker, count=len(leftover))
        for processor in processors:
            processor.finish()
        _, unfinished = await asyncio.wait(loops, timeout=_FLUSH_S)
        if unfinished:
            _log.error("could not settle everything before stopping; leases will run out", worker=self.identity.worker)

    async def _wait_for_handlers(self, patience_s: float) -> None:
        handlers = [task.handler for task in self._running.unfinished() if task.handler is not None]
        if not handlers:
            return
        hurry = asyncio.create_task(self._hurry_asked.wait())
        all_done = asyncio.create_task(asyncio.wait(handlers))
        await asyncio.wait({hurry, all_done}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        all_done.cancel()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = []
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not in a thread other than the main one; there the owner calls stop().
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.stop)
                handled.append(number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)


def _chosen_queues(app: Headrace, queues: Iterable[str] | None) -> list[str]:
    if queues is not None:
        chosen = [check_name("queues", name) for name in queues]
    else:
        chosen = sorted({task.enqueue_options.queue for task in app.tasks.values()})
    if not chosen:
        raise InvalidConfig("queues", "the app has no tasks; register some with @app.task(queue=...) or name queues")
    return list(dict.fromkeys(chosen))
