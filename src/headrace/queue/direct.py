"""The short way for code without an event loop: an enqueue straight over a socket.

A blocking caller would otherwise hand its call to a thread with an event loop and wait for it, which takes longer than
Redis does. So it asks here first. This way knows one server and one try. Whatever is not a plain success is left
to the long way, which knows all installations, tries again and names what is wrong: sending an enqueue again is
safe, for tasks are known by their ids.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any, Final

import hiredis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisError
from redis.retry import Retry

from headrace.model.task import NewTask

from . import wire
from .driver import socket_options
from .keys import QueueKeys
from .queue import EnqueueResult, script_call
from .settings import RedisSettings
from .transport import pack_evalsha

_READ_BYTES: Final = 1 << 16


class DirectLine:
    """Connections that any thread may use, one call at a time each; as many as the pool of the long way at most."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        # Replicas are waited for, and failovers followed, on the long way.
        self._is_usable = settings.mode == "standalone" and settings.confirm_replicas == 0
        self._lock = threading.Lock()
        self._start_anew()

    def enqueue(self, keys: QueueKeys, task: NewTask) -> EnqueueResult | None:
        """Store ``task`` in a queue that is known to exist; None when the long way has to be taken."""
        if not self._is_usable:
            return None
        answer = self._ask(pack_evalsha(script_call(keys, "enqueue", wire.enqueue_request([task]))))
        if not isinstance(answer, bytes):
            return None
        status, *details = wire.unpack(answer)
        if status != "ok":
            return None
        _, duplicates = details
        return EnqueueResult(duplicates[0][1], duplicate=True) if duplicates else EnqueueResult(task.task_id)

    def close(self) -> None:
        """Close the connections that lie idle; those in use are closed when they are given back."""
        with self._lock:
            idle = self._idle
            self._start_anew()
        for line in idle:
            line.close()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[_Line] = deque()
        self._made = 0

    def _ask(self, payload: bytes) -> Any:
        if self._pid != os.getpid():
            # A forked child must not talk over its parent's connections, and a lock that was held there stays held.
            self._lock = threading.Lock()
            self._start_anew()
        idle = self._idle
        line = self._take()
        if line is None:
            return None
        try:
            answer = line.ask(payload)
        except BaseException as error:
            # Its answer may still come: nobody shall read it as the answer to something else.
            line.close()
            with self._lock:
                if idle is self._idle:
                    self._made -= 1
            if isinstance(error, OSError | RedisError | hiredis.HiredisError):
                return None
            raise
        if idle is self._idle:
            idle.append(line)
        else:
            line.close()
        return answer

    def _take(self) -> _Line | None:
        try:
            return self._idle.popleft()
        except IndexError:
            pass
        with self._lock:
            if self._made >= self._settings.pool_size:
                return None
            self._made += 1
        try:
            return _Line(self._settings)
        except (OSError, RedisError):
            with self._lock:
                self._made -= 1
            return None


class _Line:
    """One connection. The driver opens it and logs in."""

    def __init__(self, settings: RedisSettings) -> None:
        options = socket_options(settings, settings.command_timeout_s) | {"retry": Retry(NoBackoff(), 0)}
        if settings.unix_socket is not None:
            self._connection: Any = UnixDomainSocketConnection(  # type: ignore[abstract, no-untyped-call]
                path=settings.unix_socket, **options
            )
        else:
            host, port = settings.hosts[0]
            self._connection = (SSLConnection if settings.tls else Connection)(host=host, port=port, **options)
        self._connection.connect()
        self._socket: Any = self._connection._sock
        self._reader = hiredis.Reader()

    def ask(self, payload: bytes) -> Any:
        self._socket.sendall(payload)
        while (answer := self._reader.gets(False)) is False:
            received = self._socket.recv(_READ_BYTES)
            if not received:
                raise ConnectionError("closed by the server")
            self._reader.feed(received)
        return answer

    def close(self) -> None:
        self._connection.disconnect()
