"""A private redis-server for tests: a real process on a free port in a directory of its own."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.clock import ServerClock
from tests.support.tls import TlsFiles
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
# Below the ephemeral range, so no outgoing connection can take the port between stop() and start(), and
# low enough that port + 10000, a cluster node's bus port, is one as well.
_PORTS = range(10_000, 20_000)
_BUS_PORT_OFFSET = 10_000

_alive: set[RedisServer] = set()


class RedisServer:
    """One redis-server process; use it as a context manager or call ``start`` and ``stop``.

    ``config`` holds lines of redis.conf as (directive, value) pairs, after the defaults (nothing persisted,
    loopback only), so they win. ``username`` and ``password`` are what ``url`` and ``client`` log in with;
    ``password`` without ``username`` also becomes ``requirepass``. ``fake_clock`` gives the server a
    ``clock`` that the test moves; ``clock`` puts it under the clock of another server. ``environment`` is added
    to the test's own. Stopping and starting again keeps port, directory and clock.
    """

    def __init__(
        self,
        config: Iterable[tuple[str, str]] = (),
        *,
        fake_clock: bool = False,
        clock: ServerClock | None = None,
        tls: TlsFiles | None = None,
        username: str | None = None,
        password: str | None = None,
        sentinel: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="hr-redis-"))
        self.unix_socket = self.directory / "redis.sock"
        self.tls = tls
        self.username = username
        self.password = password
        self._clock = ServerClock(self.directory) if fake_clock else clock
        self._config = list(config)
        self._environment = dict(environment or {})
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None

    # -- life -----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the process and wait until it answers; it has loaded its data then."""
        if not self.running:
            self.start_without_waiting()
            with self.client(socket_timeout=5.0) as probe:
                wait_until(lambda: self._answers(probe), START_TIMEOUT_S, f"redis-server :{self.port} did not answer")
        return self

    def start_without_waiting(self) -> Self:
        """Start the process only; for tests of a server that is still loading its data."""
        self.directory.mkdir(exist_ok=True)
        conf = self.directory / "redis.conf"
        if not conf.exists():  # a sentinel keeps its state in this file: write it once
            conf.write_text(self._render())
        environment = os.environ | self._environment
        if self._clock is not None:
            environment |= self._clock.environment()
        command = ["redis-server", str(conf)]
        if self._sentinel:
            command.append("--sentinel")
        if setpriv := shutil.which("setpriv"):
            # The kernel ends the server when the thread that started it ends, even after a SIGKILL of pytest.
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with open(self.directory / "output.log", "ab") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        _alive.add(self)
        return self

    def stop(self) -> None:
        """End the process in an orderly way (SIGTERM: an append-only file is flushed)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def unpause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop and start again, with the same port and directory."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the process and remove its directory."""
        self.kill()
        _alive.discard(self)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def add_config(self, lines: Iterable[tuple[str, str]]) -> None:
        """More lines of redis.conf, before the first start."""
        self._config += lines

    # -- use ------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def clock(self) -> ServerClock:
        if self._clock is None:
            raise RuntimeError("this server runs on the host's clock; start it with fake_clock=True")
        return self._clock

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The server in Headrace's URL form, with the login."""
        scheme, options = ("rediss", f"?tls_ca_file={quote(str(self.tls.ca_file))}") if self.tls else ("redis", "")
        return f"{scheme}://{self._userinfo()}{self.address}/0{options}"

    @property
    def unix_url(self) -> str:
        return f"unix://{self._userinfo()}{self.unix_socket}"

    @property
    def primaries(self) -> list[RedisServer]:
        """Itself: the one server that holds data. See ``tests.support.topology``."""
        return [self]

    def owner_of(self, key: str) -> RedisServer:
        return self

    def client(self, **options: Any) -> redis.Redis:
        """A synchronous client that returns bytes and never retries."""
        if self.tls:
            own_certificate = {"ssl_certfile": str(self.tls.cert_file), "ssl_keyfile": str(self.tls.key_file)}
            options = {"ssl": True, "ssl_ca_certs": str(self.tls.ca_file)} | own_certificate | options
        login = {"username": self.username, "password": self.password}
        return redis.Redis(host=HOST, port=self.port, protocol=2, retry=Retry(NoBackoff(), 0), **login | options)

    # -- inside ---------------------------------------------------------------------------------------

    def _render(self) -> str:
        lines = [("bind", HOST), ("dir", str(self.directory)), ("daemonize", "no")]
        if self.tls:
            lines += [
                ("port", "0"),
                ("tls-port", str(self.port)),
                ("tls-cert-file", str(self.tls.cert_file)),
                ("tls-key-file", str(self.tls.key_file)),
                ("tls-ca-cert-file", str(self.tls.ca_file)),
                ("tls-auth-clients", "optional"),
            ]
        else:
            lines.append(("port", str(self.port)))
        if not self._sentinel:
            lines += [("save", '""'), ("appendonly", "no"), ("unixsocket", str(self.unix_socket))]
        if self.password and not self.username:
            lines.append(("requirepass", self.password))
        return "".join(f"{directive} {value}\n" for directive, value in lines + self._config)

    def _userinfo(self) -> str:
        if not self.password:
            return ""
        return f"{quote(self.username or '', safe='')}:{quote(self.password, safe='')}@"

    def _answers(self, probe: redis.Redis) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self.directory / "output.log").read_text(errors="replace")
            raise RuntimeError(f"redis-server ended with {self._process.returncode}:\n{log[-2000:]}")
        try:
            return bool(probe.ping())
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True  # up, and particular about who asks
        except (redis.ConnectionError, redis.TimeoutError):  # BusyLoadingError is a ConnectionError
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # a paused process does not see SIGTERM
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port nobody listens on, whose cluster bus port is free as well."""
    for port in random.sample(_PORTS, 500):
        if _bindable(port) and _bindable(port + _BUS_PORT_OFFSET):
            return port
    raise RuntimeError("no free port found")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


@atexit.register
def _close_all() -> None:
    for server in list(_alive):
        server.close()
