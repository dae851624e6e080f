"""The three kinds of Redis installation that Headrace runs on, behind one interface.

Tests of the queue ask for an installation and are run on each kind that ``--topology`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, get_args

from tests.support.clock import ServerClock
from tests.support.cluster import RedisClusterServers
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SentinelSet

Topology = Literal["standalone", "sentinel", "cluster"]
TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)

# Tests share these and nobody dies in them: a machine that is busy for a while must not cause a failover.
_PATIENT_MS = 60_000


class Installation(Protocol):
    """One server, a Sentinel set or a cluster."""

    @property
    def url(self) -> str:
        """How Headrace is told of it."""

    @property
    def clock(self) -> ServerClock:
        """The clock of all its servers; an error where they run on the host's."""

    @property
    def primaries(self) -> list[RedisServer]:
        """The servers that take writes."""

    def owner_of(self, key: str) -> RedisServer:
        """The server that takes the writes to ``key``."""

    # The clients of the driver for one server and for a cluster have no common type.
    def client(self, **options: Any) -> Any:
        """A synchronous client that reaches every key."""


@contextmanager
def installed(topology: Topology, *, frozen: bool = False) -> Iterator[Installation]:
    """An installation for the length of the block; ``frozen``: its clock stands still until a test moves it."""
    with _servers(topology, fake_clock=frozen) as servers:
        if frozen:
            servers.clock.freeze()
        yield servers


def _servers(topology: Topology, *, fake_clock: bool) -> RedisServer | SentinelSet | RedisClusterServers:
    if topology == "sentinel":
        return SentinelSet(down_after_ms=_PATIENT_MS, fake_clock=fake_clock)
    if topology == "cluster":
        return RedisClusterServers(node_timeout_ms=_PATIENT_MS, fake_clock=fake_clock)
    return RedisServer(fake_clock=fake_clock)
