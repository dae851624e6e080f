"""A Redis Cluster of three primaries and three replicas, all real processes."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

from tests.support.redis_server import RedisServer
from tests.support.waiting import unless_cut_off, wait_until

PRIMARIES = 3
REPLICAS_EACH = 1


class RedisClusterServers:
    """A small cluster; ``key`` arguments choose the part of it that a test is about."""

    def __init__(self, *, node_timeout_ms: int = 2000, config: tuple[tuple[str, str], ...] = ()) -> None:
        self.servers = [
            RedisServer(
                [
                    ("cluster-enabled", "yes"),
                    ("cluster-node-timeout", str(node_timeout_ms)),
                    ("repl-diskless-sync-delay", "0"),
                    *config,
                ]
            )
            for _ in range(PRIMARIES * (1 + REPLICAS_EACH))
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
            wait_until(unless_cut_off(self._settled), 60, "the cluster did not come up")
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
            owners = {self._shard(key, asked)[0].port for asked in running}
            return len(owners) == 1 and than.port not in owners and all(_state_ok(server) for server in running)

        wait_until(unless_cut_off(moved), 60, f"no replica took over {key!r}")
        return self.primary_of(key)

    def failover(self, key: str) -> RedisServer:
        """Let the replica of ``key``'s owner take over in an orderly way; the old owner lives on as its replica."""
        old = self.primary_of(key)
        with self.replica_of(key).client() as client:
            client.execute_command("CLUSTER FAILOVER")
        return self.wait_for_other_primary(key, old)

    def _shard(self, key: str, asked: RedisServer | None = None) -> list[RedisServer]:
        """The servers of ``key``'s slot, the owner first."""
        asked = asked or next(server for server in self.servers if server.running)
        with asked.client() as client:
            slot = client.execute_command("CLUSTER KEYSLOT", key)
            shards = client.execute_command("CLUSTER SLOTS")
        by_port = {server.port: server for server in self.servers}
        for first, last, *nodes in shards:
            if first <= slot <= last:
                return [by_port[port] for _host, port, *_rest in nodes]
        raise AssertionError(f"nobody owns the slot of {key!r}")

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
