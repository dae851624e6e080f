"""The operator's connections to Redis: one for each installation and login, however many queues are there."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path

import msgspec

from headrace.queue.bells import Bells
from headrace.queue.connection import Connection
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import Transport

_POOL_SIZE = 8
_CONNECT_TIMEOUT_S = 3.0
_COMMAND_TIMEOUT_S = 5.0


class Backend:
    """An installation that some queues are on."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.connection = Connection(settings)
        self.transport = Transport(self.connection)
        self.bells = Bells(self.connection)
        self.users: set[object] = set()

    async def aclose(self) -> None:
        await self.bells.aclose()
        await self.connection.aclose()


class Backends:
    """Opens connections when the first queue needs them, and closes them after the last."""

    def __init__(self) -> None:
        self._backends: dict[RedisSettings, Backend] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._certificates = tempfile.TemporaryDirectory(prefix="headrace-ca-")

    def use(self, settings: RedisSettings, user: object) -> Backend:
        """The connection for these settings. ``user`` lets go of any other that it used before."""
        settings = msgspec.structs.replace(
            settings,
            # A queue asks once a second, and waiting long for an answer would only hide that there is none.
            pool_size=_POOL_SIZE,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            command_timeout_s=_COMMAND_TIMEOUT_S,
        )
        backend = self._backends.get(settings)
        if backend is None:
            backend = self._backends[settings] = Backend(settings)
        backend.users.add(user)
        for other in [other for other in self._backends.values() if other is not backend]:
            self._leave(other, user)
        return backend

    def leave(self, user: object) -> None:
        """This user needs no connection any more."""
        for backend in list(self._backends.values()):
            self._leave(backend, user)

    def _leave(self, backend: Backend, user: object) -> None:
        backend.users.discard(user)
        if not backend.users:
            self._backends.pop(backend.settings, None)
            task = asyncio.create_task(backend.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def certificate_file(self, text: str) -> str:
        """A file with this certificate, as the driver wants one."""
        path = Path(self._certificates.name) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.crt"
        if not path.exists():
            path.write_text(text, encoding="utf-8")
        return str(path)

    async def aclose(self) -> None:
        """Close all of them."""
        backends, self._backends = list(self._backends.values()), {}
        await asyncio.gather(*(backend.aclose() for backend in backends), *self._closing)
        self._certificates.cleanup()
