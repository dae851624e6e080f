"""One primary, two replicas and three sentinels, all real processes.

A fake clock is shared by the primary and its replicas, so that the time goes on where it was after a failover.
The sentinels stay on the host's clock: they measure each other's and the servers' silence with it, and a clock
that stands still or leaps would make them blind or nervous. Between primary and replica the same is true of
``repl-timeout``, a span on the wall clock: a leap of a minute would cut the link. It is switched off there.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import redis

from tests.support.clock import ServerClock
from tests.support.redis_server import HOST, RedisServer
from tests.support.waiting import unless_cut_off, wait_until

SERVICE = "mymaster"
_QUORUM = 2
_NEVER_S = "2147483647"


class SentinelSet:
    """A small Sentinel installation that fails over about two seconds after its primary has died.

    ``config`` holds further lines of redis.conf for the primary and the replicas.
    """

    def __init__(
        self, *, down_after_ms: int = 1000, config: Iterable[tuple[str, str]] = (), fake_clock: bool = False
    ) -> None:
        primary = RedisServer(fake_clock=fake_clock)
        self._clock = primary.clock if fake_clock else None
        replicas = [RedisServer([("replicaof", f"{HOST} {primary.port}")], clock=self._clock) for _ in range(2)]
        self.servers = [primary, *replicas]
        # repl-diskless-sync-delay: a fresh replica need not wait five seconds for others to join its sync.
        lines = [("repl-diskless-sync-delay", "0"), ("repl-ping-replica-period", "1"), *config]
        if fake_clock:
            lines.append(("repl-timeout", _NEVER_S))
        for server in self.servers:
            server.add_config(lines)
        self.sentinels = [
            RedisServer(
                [
                    ("sentinel monitor", f"{SERVICE} {HOST} {primary.port} {_QUORUM}"),
                    ("sentinel down-after-milliseconds", f"{SERVICE} {down_after_ms}"),
                    ("sentinel failover-timeout", f"{SERVICE} 10000"),
                ],
                sentinel=True,
            )
            for _ in range(3)
        ]

    def __enter__(self) -> Self:
        try:
            for server in self.servers + self.sentinels:
                server.start()
            self.wait_until_settled()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for server in self.sentinels + self.servers:
            server.close()

    @property
    def url(self) -> str:
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def primary(self) -> RedisServer:
        """The server the sentinels name as primary right now."""
        port = self._primary_port()
        return next(server for server in self.servers if server.port == port)

    @property
    def primaries(self) -> list[RedisServer]:
        return [self.primary]

    def owner_of(self, key: str) -> RedisServer:
        return self.primary

    @property
    def clock(self) -> ServerClock:
        if self._clock is None:
            raise RuntimeError("these servers run on the host's clock; start them with fake_clock=True")
        return self._clock

    def client(self, **options: Any) -> redis.Redis:
        """A synchronous client of whoever is the primary now."""
        return self.primary.client(**options)

    def kill_primary(self) -> RedisServer:
        """Crash the primary and return it at once; ``wait_for_other_primary`` sees the failover through."""
        victim = self.primary
        victim.kill()
        return victim

    def wait_for_other_primary(self, than: RedisServer) -> RedisServer:
        """Wait until every sentinel names another primary than ``than``, and that one takes writes."""
        wait_until(unless_cut_off(lambda: self._agreed_on_other(than)), 60, "the sentinels did not promote a replica")
        return self.primary

    def failover(self) -> RedisServer:
        """Have the sentinels switch over in an orderly way; the old primary lives on as a replica.

        This waits until the old primary has been demoted. Sentinel takes up to ten seconds over that, and
        until then the old primary goes on accepting writes, which are lost with its demotion.
        """
        old = self.begin_failover()
        new = self.wait_for_other_primary(old)
        self.wait_until_settled()
        return new

    def begin_failover(self) -> RedisServer:
        """Ask for a switch-over and return the old primary at once."""
        old = self.primary
        wait_until(unless_cut_off(self._ask_for_failover), 60, "no sentinel accepted the failover")
        return old

    def wait_until_settled(self) -> None:
        """Wait until the sentinels agree on the primary and every running server follows it."""
        wait_until(unless_cut_off(self._settled), 60, "the sentinels and servers did not settle")

    def _ask_for_failover(self) -> bool:
        with self.sentinels[0].client() as client:
            try:
                return bool(client.execute_command("SENTINEL", "FAILOVER", SERVICE))
            except redis.ResponseError:  # NOGOODSLAVE until the replicas are known well enough
                return False

    def _agreed_on_other(self, than: RedisServer) -> bool:
        ports = {self._primary_port(sentinel) for sentinel in self.sentinels}
        if len(ports) != 1 or than.port in ports:
            return False
        with self.primary.client() as client:
            return client.info("replication")["role"] == "master"

    def _primary_port(self, sentinel: RedisServer | None = None) -> int:
        with (sentinel or self.sentinels[0]).client() as client:
            reply = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(reply[1])

    def _settled(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                state = client.sentinel_master(SERVICE)
            if state["num-slaves"] < 2 or state["num-other-sentinels"] < 2 or state["flags"] != "master":
                return False
        primary = self.primary
        if any(self._primary_port(sentinel) != primary.port for sentinel in self.sentinels):
            return False
        return all(server is primary or self._follows(server, primary) for server in self.servers if server.running)

    def _follows(self, server: RedisServer, primary: RedisServer) -> bool:
        with server.client() as client:
            state = client.info("replication")
        return state["role"] == "slave" and state["master_port"] == primary.port and state["master_link_status"] == "up"
