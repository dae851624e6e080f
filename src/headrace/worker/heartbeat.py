"""The heartbeat: a thread, an event loop and a connection of its own.

A handler that blocks the worker's loop must not cost the leases of everything else it runs. So the leases
are renewed from here, and a lost lease or a cancellation found here is handed over to the worker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from typing import Literal

import structlog

from headrace.app.backend import RedisBackend
from headrace.app.headrace import Headrace
from headrace.model.config import QueueConfig
from headrace.model.errors import HeadraceError, UnknownQueue
from headrace.queue.queue import HeartbeatReply

from .health import Health, serve_health
from .identity import WorkerIdentity
from .metrics import WorkerMetrics
from .running import RunningTasks, StopReason

_RETRY_AFTER_S = 1.0
_SHORTEST_INTERVAL_S = 0.5
"""Progress reports wake the heartbeat early, but not more often than this."""

_log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews leases and the worker's record until stopped."""

    def __init__(
        self,
        app: Headrace,
        configs: dict[str, QueueConfig],
        identity: WorkerIdentity,
        running: RunningTasks,
        health: Health,
        metrics: WorkerMetrics,
        health_listener: socket.socket | None,
    ) -> None:
        self._app = app
        self._configs = configs
        self._identity = identity
        self._running = running
        self._health = health
        self._metrics = metrics
        self._health_listener = health_listener
        self._status: Literal["active", "draining"] = "active"
        self._worker_loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run_thread, name="headrace-heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()

    def start(self) -> None:
        """Begin to beat. The worker has been registered before, by its own loop."""
        self._thread.start()
        self._started.wait()

    def drain(self) -> None:
        """Say with the next beats that this worker claims nothing more."""
        self._status = "draining"
        self.beat_soon()

    def beat_soon(self) -> None:
        """Do not wait for the whole interval. Callable from any thread."""
        self._from_outside(self._hurry)

    async def ended(self) -> None:
        """Wait for the end of the thread; raises what ended it, if that was not `stop`."""
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Beat no more, and take the worker's record away."""
        self._from_outside(self._stop)
        await self._ended.wait()

    def _from_outside(self, event: asyncio.Event) -> None:
        if self._loop is not None and not self._loop.is_closed():
            # The loop may close in this very moment; then there is nothing left to hurry.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(event.set)

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised again where the worker waits for this thread
            self._failure = error
        finally:
            self._started.set()
            if not self._worker_loop.is_closed():
                self._worker_loop.call_soon_threadsafe(self._ended.set)

    async def _main(self) -> None:
        self._hurry = asyncio.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started.set()
        server = None
        if self._health_listener is not None:
            server = await serve_health(self._health, self._metrics.answer, self._health_listener)
        try:
            backend = self._app.redis_backend()
            while not self._stop.is_set():
                beats = await asyncio.gather(*(self._beat(backend, name) for name in self._configs))
                await self._pause(_RETRY_AFTER_S if False in beats else self._interval_s())
            for name in self._configs:
                with contextlib.suppress(HeadraceError):  # a record left behind is found dead and purged
                    await (await backend.queue(name)).heartbeat(self._identity.worker, status="stopped")
        finally:
            if server is not None:
                server.close()
            await self._app.aclose()

    def _interval_s(self) -> float:
        shortest = min(config.heartbeat_s for config in self._configs.values())
        return shortest * random.uniform(0.9, 1.0)

    async def _pause(self, seconds: float) -> None:
        stopping = asyncio.ensure_future(self._stop.wait())
        hurrying = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({stopping, hurrying}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._hurry.is_set() and not self._stop.is_set():
            await asyncio.wait({stopping}, timeout=min(_SHORTEST_INTERVAL_S, seconds))
        self._hurry.clear()
        for waiter in (stopping, hurrying):
            waiter.cancel()

    async def _beat(self, backend: RedisBackend, name: str) -> bool:
        held = self._running.leases(name)
        try:
            queue = await backend.queue(name)
            reply = await queue.heartbeat(
                **self._identity.fields(),
                status=self._status,
                held=held,
                progress=self._running.take_progress(name),
            )
            # Leases and intervals may have been changed while we run.
            self._configs[name] = await queue.config()
        except HeadraceError as error:
            _log.warning("heartbeat failed", queue=name, error=str(error))
            if isinstance(error, UnknownQueue):
                backend.forget(name)  # and publish it anew with the next beat, if it is the app's own
            else:
                self._metrics.heartbeat_failed()
            return False
        self._worker_loop.call_soon_threadsafe(self._hand_over, name, dict(held), reply)
        return True

    def _hand_over(self, queue: str, held: dict[str, int], reply: HeartbeatReply) -> None:
        """In the worker's loop: stop what is to be stopped."""
        for task_id in reply.lost:
            if self._running.stop(queue, task_id, held[task_id], StopReason.LEASE_LOST):
                _log.warning("handler stopped: the lease was lost", queue=queue, task_id=task_id, token=held[task_id])
        for task_id in reply.cancelled:
            self._running.stop(queue, task_id, held[task_id], StopReason.CANCELLED)
