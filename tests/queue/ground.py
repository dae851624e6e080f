"""What the state machine stands on: every key of an installation, and a way to run the queue's verbs on it.

On one server the scripts are sent over a plain connection, one after the other: the machine is about the scripts,
and that is the quickest way to run many of them. On Sentinel and Cluster they go through Headrace's own transport,
because the way to the right server is what those runs are about.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import resources
from typing import Any, Protocol

import redis

from headrace.queue.connection import Connection
from headrace.queue.scripts import script
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import ScriptCall, Transport
from tests.support.redis_server import RedisServer
from tests.support.topology import Installation

SCRIPTS = sorted(
    file.name.removesuffix(".lua")
    for file in resources.files("headrace.queue").joinpath("lua").iterdir()
    if file.name.endswith(".lua")
)


class VerbRunner(Protocol):
    """What a ``Queue`` needs of its transport. These coroutines never wait, so that no event loop is needed."""

    async def run(self, *calls: ScriptCall) -> list[Any]: ...
    async def execute(self, *args: Any) -> Any: ...


class SyncTransport:
    """Runs the same calls as the real transport, one after the other on a plain connection."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._loaded: set[str] = set()

    async def run(self, *calls: ScriptCall) -> list[Any]:
        return [self._run_one(call) for call in calls]

    async def execute(self, *args: Any) -> Any:
        return self._client.execute_command(*args)

    def _run_one(self, call: ScriptCall) -> Any:
        script = call.script
        if script.sha not in self._loaded:
            self._client.execute_command("SCRIPT", "LOAD", script.source)
            self._loaded.add(script.sha)
        return self._client.execute_command("EVALSHA", script.sha, len(call.keys), *call.keys, *call.args)


class LoopTransport:
    """The real transport, in an event loop of its own that runs while a call does."""

    def __init__(self, runner: asyncio.Runner, transport: Transport) -> None:
        self._runner = runner
        self._transport = transport

    async def run(self, *calls: ScriptCall) -> list[Any]:
        return self._runner.get_loop().run_until_complete(self._transport.run(*calls))

    async def execute(self, *args: Any) -> Any:
        return self._runner.get_loop().run_until_complete(self._transport.execute(*args))


class Ground:
    """All keys of ``servers``, which nobody else uses."""

    def __init__(self, servers: Installation, clients: dict[int, redis.Redis], transport: VerbRunner) -> None:
        self.clock = servers.clock
        self.transport = transport
        self._servers = servers
        self._clients = clients
        # Slots do not move while the machine runs, and asking takes longer than a step.
        self._owner_of = functools.cache(lambda key: servers.owner_of(key).port)

    def load(self, script: str) -> str:
        """Make a script known to every server; returns its digest."""
        (sha,) = {str(client.script_load(script)) for client in self._clients.values()}
        return sha

    def ask_all(self, sha: str, argument: str) -> list[Any]:
        """What a script without keys answers, from each server."""
        return [client.execute_command("EVALSHA", sha, 0, argument) for client in self._clients.values()]

    def read(self, command: str, key: str, *arguments: Any) -> Any:
        """A command about one key, on the server that has it."""
        return self._clients[self._owner_of(key)].execute_command(command, key, *arguments)

    def clear(self, part_of_key: bytes = b"") -> None:
        """Delete every key whose name contains ``part_of_key``."""
        for client in self._clients.values():
            with client.pipeline(transaction=False) as deletions:
                for key in client.keys("*"):
                    if part_of_key in key:
                        deletions.unlink(key)  # one by one: keys of several slots cannot go together
                deletions.execute()


@contextmanager
def ground_of(servers: Installation) -> Iterator[Ground]:
    """A clean ground for the length of the block."""
    with ExitStack() as stack:
        clients = {
            server.port: stack.enter_context(redis.Redis(unix_socket_path=str(server.unix_socket), protocol=2))
            for server in servers.primaries
        }
        if isinstance(servers, RedisServer):
            transport: VerbRunner = SyncTransport(clients[servers.port])
        else:
            runner = stack.enter_context(asyncio.Runner())
            connection = Connection(RedisSettings.from_url(servers.url))
            runner.run(connection.open())
            stack.callback(lambda: runner.run(connection.aclose()))
            transport = LoopTransport(runner, Transport(connection))
        ground = Ground(servers, clients, transport)
        # A call whose script a server does not know yet is sent again, after those that it came with: once in the life
        # of a server, a claim would be told of before the settle that goes with it.
        for name in SCRIPTS:
            ground.load(script(name).source.decode())
        ground.clear()  # what an earlier machine may have left behind is not this one's fault
        yield ground
