"""Failovers under load. Producers and workers go on by themselves; what was lost is counted and explained.

Redis replicates without waiting, so a failover forgets the primary's last writes. How many these are:

* kill -9: what the primary had answered but not yet sent to the replica that took over. The loop that answers a
  write sends it on in the same round, so this is a matter of milliseconds.
* a switch-over that Sentinel was asked for (``SENTINEL FAILOVER``): Sentinel promotes a replica and tells the old
  primary eight to ten seconds later. Until then it takes writes from whoever still talks to it. Headrace leaves it
  when the sentinels announce the promotion, about a second after it.
* a switch-over of a cluster node (``CLUSTER FAILOVER``): nothing, the old owner stops and hands over.

``confirm_replicas`` with the number of *all* replicas closes both: a replica that was promoted no longer confirms
anything to the old primary, and one that confirmed before has the write. With fewer, the replica that confirmed
need not be the one that is promoted. ``min-replicas-to-write`` with all replicas closes the second, not the first.

Claims wait for nobody. A task that a deposed primary handed out is still waiting on the new one and is done again;
its first worker's settle is refused there. That is what a lease and a fencing token are for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.chaos import report
from tests.chaos.failover import Account, Load
from tests.chaos.forms import by_length
from tests.support.cluster import RedisClusterServers
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SentinelSet
from tests.support.topology import Installation

pytestmark = pytest.mark.drill

# The bound that we publish: what was confirmed earlier before a fault or later after it is never lost.
LOST_BEFORE_S = 1.0
LOST_AFTER_S = 5.0

FAULTS = {
    "sentinel": "Sentinel: the primary is killed with SIGKILL, and switched over, in turns",
    "cluster": "Cluster: the owner of the queue is killed with SIGKILL, and switched over, in turns",
}


@pytest.fixture
def marks() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def check(account: Account, drill: str, times: int, *, may_lose: bool) -> None:
    print(f"\n  {account}")
    report.write(
        report.Row(
            drill=f"failover_{drill}",
            fault=f"{FAULTS[drill.partition('_')[0]]}; {account.name}",
            times=times,
            tasks=account.confirmed,
            lost=account.lost + account.record_lost,
            settled_twice=account.settled_twice,
            executed_again=account.ran_again,
            recovery_p50_s=None,
            recovery_p99_s=account.longest_silence_s,
            recovery="the longest time between two confirmed calls",
            took_s=account.took_s,
        )
    )
    assert account.confirmed > 100, "too little happened to prove anything"
    assert account.settled_twice == 0, str(account)
    if not may_lose:
        assert (account.lost, account.record_lost) == (0, 0), str(account)
    outside = [since_s for since_s in account.lost_after_s if not -LOST_BEFORE_S <= since_s <= LOST_AFTER_S]
    assert outside == [], f"lost outside of the published bound: {account}"


async def run(
    servers: Installation, marks: RedisServer, loads: dict[str, tuple[str, str]], faults: Sequence[Callable[[], object]]
) -> dict[str, Account]:
    """``loads`` by name: tenant and options of the URL. Each fault runs in a thread and returns when it is over."""
    started_s = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(Load(name, servers, marks, tenant, options))
            for name, (tenant, options) in loads.items()
        ]
        for load in running:
            await load.flows()
        faults_at_s: list[float] = []
        for fault in faults:
            faults_at_s.append(time.monotonic())
            await asyncio.to_thread(fault)
            for load in running:
                await load.flows()
        for load in running:
            await load.stop_producing()
        accounts = {load.name: await load.account(faults_at_s) for load in running}
    for account in accounts.values():
        account.took_s = time.monotonic() - started_s
    return accounts


def sentinel_faults(servers: SentinelSet, count: int) -> list[Callable[[], object]]:
    """Switch-overs and crashes in turn."""

    def crash() -> None:
        victim = servers.kill_primary()
        servers.wait_for_other_primary(victim)
        victim.start()  # comes back as what it was; the sentinels make it a replica
        servers.wait_until_settled()

    return [crash if number % 2 else servers.failover for number in range(count)]


async def test_sentinel_failovers(marks: RedisServer, tenant: str) -> None:
    with SentinelSet(down_after_ms=500) as servers:
        loads = {
            "plain": (f"{tenant}-plain", ""),
            "confirmed by one of two replicas": (f"{tenant}-one", "?confirm_replicas=1"),
            "confirmed by both replicas": (f"{tenant}-both", "?confirm_replicas=2"),
        }
        times = by_length(2, 50)
        accounts = await run(servers, marks, loads, sentinel_faults(servers, times))
    check(accounts["plain"], "sentinel_plain", times, may_lose=True)
    check(accounts["confirmed by one of two replicas"], "sentinel_one_replica", times, may_lose=True)
    check(accounts["confirmed by both replicas"], "sentinel_both_replicas", times, may_lose=False)


async def test_sentinel_failovers_of_a_primary_that_needs_its_replicas(marks: RedisServer, tenant: str) -> None:
    needs_both = [("min-replicas-to-write", "2"), ("min-replicas-max-lag", "10")]
    with SentinelSet(down_after_ms=500, config=needs_both) as servers:
        loads = {"min-replicas-to-write 2": (tenant, "")}
        times = by_length(2, 10)
        accounts = await run(servers, marks, loads, sentinel_faults(servers, times))
    check(accounts["min-replicas-to-write 2"], "sentinel_min_replicas", times, may_lose=True)


async def test_cluster_failovers(marks: RedisServer, tenant: str) -> None:
    with RedisClusterServers(node_timeout_ms=1000) as servers:
        key = f"hr:{{{tenant}-plain/jobs}}:config"
        owner = servers.owner_of(key)
        names = (f"{tenant}-{number}" for number in itertools.count())
        neighbour = next(name for name in names if servers.owner_of(f"hr:{{{name}/jobs}}:config") is owner)

        def crash() -> None:
            victim = servers.kill_primary(key)
            servers.wait_for_other_primary(key, victim)
            victim.start()
            servers.wait_until_settled()

        def switch_over() -> None:
            servers.failover(key)
            servers.wait_until_settled()

        loads = {"plain": (f"{tenant}-plain", ""), "confirmed by the replica": (neighbour, "?confirm_replicas=1")}
        faults = [crash if number % 2 else switch_over for number in range(by_length(2, 20))]
        accounts = await run(servers, marks, loads, faults)
    check(accounts["plain"], "cluster_plain", len(faults), may_lose=True)
    check(accounts["confirmed by the replica"], "cluster_confirmed", len(faults), may_lose=False)
