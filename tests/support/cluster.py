"""A Redis Cluster of three primaries and three replicas, all real processes.

A fake clock is shared by all nodes. They measure each other's silence on the wall clock: a leap of a minute
would be a minute of silence to all of them at once, and the cluster would go down. So the node timeout is raised
to centuries as soon as the cluster stands, and the clock runs until then. Such a cluster never fails over.
Replicas and primaries measure each other's silence as well, and ``repl-timeout`` is raised likewise.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.clock import ServerClock
from tests.support.redis_server import HOST, RedisServer
from tests.support.waiting import unless_cut_off, wait_until

PRIMARIES = 3
REPLICAS_EACH = 1
# Nodes that are patient with each other also take their time to get to know each other.
_TIMEOUT_AT_FIRST_MS = "2000"
_NEVER_S = "2147483647"
_NEVER_MS = str(10**13)


class RedisClusterServers:
    """A small cluster; ``key`` arguments choose the part of it that a test is about.

    ``config`` holds further lines of redis.conf for every node.
    """

    def __init__(
        self, *, node_timeout_ms: int = 2000, config: Iterable[tuple[str, str]] = (), fake_clock: bool = False
    ) -> None:
        lines = [
            ("cluster-enabled", "yes"),
            ("cluster-node-timeout", _TIMEOUT_AT_FIRST_MS),
            ("repl-diskless-sync-delay", "0"),
            *config,
        ]
        if fake_clock:
            lines.append(("repl-timeout", _NEVER_S))
        self._node_timeout_ms = _NEVER_MS if fake_clock else str(node_timeout_ms)
        first = RedisServer(lines, fake_clock=fake_clock)
        self._clock = first.clock if fake_clock else None
        self.servers = [
            first,
            *(RedisServer(lines, clock=self._clock) for _ in range(PRIMARIES * (1 + REPLICAS_EACH) - 1)),
        ]

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            subprocess.run(
                [
                    *("redis-cli", "--cluster", "create"),
                    *(server.address for server in self.servers),
                    *("--cluster-replicas", str(REPLICAS_EACH), "--cluster-yes"),
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
            self.wait_until_settled()
            self._set_everywhere("cluster-node-timeout", self._node_timeout_ms)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for server in self.servers:
            server.close()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(server.address for server in self.servers)

    @property
    def primaries(self) -> list[RedisServer]:
        """The owners of slots right now."""
        with next(server for server in self.servers if server.running).client() as client:
            ports = {nodes[0][1] for _first, _last, *nodes in client.execute_command("CLUSTER SLOTS")}
        return [server for server in self.servers if server.port in ports]

    @property
    def clock(self) -> ServerClock:
        if self._clock is None:
            raise RuntimeError("these servers run on the host's clock; start them with fake_clock=True")
        return self._clock

    def client(self, **options: Any) -> redis.RedisCluster:
        """A synchronous client that finds the owner of each key by itself."""
        return redis.RedisCluster(host=HOST, port=self.servers[0].port, protocol=2, retry=Retry(NoBackoff(), 0))

    def owner_of(self, key: str) -> RedisServer:
        return self.primary_of(key)

    def primary_of(self, key: str) -> RedisServer:
        """The server that owns the slot of ``key`` right now."""
        return self._shard(key)[0]

    def replica_of(self, key: str) -> RedisServer:
        return self._shard(key)[1]

    def kill_primary(self, key: str) -> RedisServer:
        """Crash the owner of ``key`` and return it at once; its replica takes over after the node timeout."""
        victim = self.primary_of(key)
        victim.kill()
        return victim

    def wait_for_other_primary(self, key: str, than: RedisServer) -> RedisServer:
        """Wait until every running node names another owner of ``key`` than ``than``, and serves."""

        def moved() -> bool:
            running = [server for server in self.servers if server.running]
            # In the middle of a failover a node may know of the old owner's demotion and not yet of the new owner.
            shards = [self._shard_seen_by(node, key) for node in running]
            owners = {shard[0].port if shard else None for shard in shards}
            if len(owners) != 1 or owners & {than.port, None}:
                return False
            return all(_state_ok(server) for server in running)

        wait_until(unless_cut_off(moved), 60, f"no replica took over {key!r}")
        return self.primary_of(key)

    def failover(self, key: str) -> RedisServer:
        """Let the replica of ``key``'s owner take over in an orderly way; the old owner lives on as its replica."""
        old = self.primary_of(key)
        with self.replica_of(key).client() as client:
            client.execute_command("CLUSTER FAILOVER")
        return self.wait_for_other_primary(key, old)

    def wait_until_settled(self) -> None:
        """Wait until every node serves, knows all others and, if it is a replica, is connected to its primary."""
        wait_until(unless_cut_off(self._settled), 60, "the cluster did not settle")

    def _shard(self, key: str) -> list[RedisServer]:
        """The servers of ``key``'s slot, the owner first."""
        shard = self._shard_seen_by(next(server for server in self.servers if server.running), key)
        if not shard:
            raise AssertionError(f"nobody owns the slot of {key!r}")
        return shard

    def _shard_seen_by(self, node: RedisServer, key: str) -> list[RedisServer]:
        """The same as ``node`` knows it: empty while it knows of no owner."""
        with node.client() as client:
            slot = client.execute_command("CLUSTER KEYSLOT", key)
            shards = client.execute_command("CLUSTER SLOTS")
        by_port = {server.port: server for server in self.servers}
        for first, last, *nodes in shards:
            if first <= slot <= last:
                return [by_port[port] for _host, port, *_rest in nodes]
        return []

    def _set_everywhere(self, name: str, value: str) -> None:
        for server in self.servers:
            with server.client() as client:
                client.config_set(name, value)

    def _settled(self) -> bool:
        return all(_state_ok(server) and _knows_all(server, len(self.servers)) for server in self.servers)


def _state_ok(server: RedisServer) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok"


def _knows_all(server: RedisServer, nodes: int) -> bool:
    with server.client() as client:
        slots = client.execute_command("CLUSTER SLOTS")
        linked = client.info("replication")
    complete = len(slots) == PRIMARIES and sum(len(members) for _first, _last, *members in slots) == nodes
    return complete and (linked["role"] == "master" or linked["master_link_status"] == "up")
