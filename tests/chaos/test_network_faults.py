"""A network between Redis and everybody else that resets connections, goes silent, or is slow.

The checker alone talks to Redis directly. Commands time out after ``COMMAND_TIMEOUT_S`` here instead of after the
default 10 s, so that a hundred silences fit into minutes; the lease is in the same proportion.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager

import pytest

from tests.chaos.drill import Drill, open_drill
from tests.chaos.forms import sized
from tests.support.redis_server import RedisServer
from tests.support.toxiproxy import Direction, Toxiproxy

pytestmark = pytest.mark.drill

COMMAND_TIMEOUT_S = 1.0
LEASE_S = 3.0
RECOVERED = "from the end of the fault to the next completed task"


@pytest.fixture
def network(own_redis: RedisServer) -> Iterator[Toxiproxy]:
    with Toxiproxy(own_redis.port) as proxy:
        yield proxy


def _drill(name: str, server: RedisServer, tenant: str, network: Toxiproxy) -> AbstractAsyncContextManager[Drill]:
    url = f"{network.url}?command_timeout_s={COMMAND_TIMEOUT_S:g}&connect_timeout_s={COMMAND_TIMEOUT_S:g}"
    return open_drill(name, server, tenant, lease_s=LEASE_S, url=url)


async def _one_fault(drill: Drill, fault: AbstractContextManager[None], lasts_s: float) -> None:
    await drill.ask_for(300)
    await drill.busy_worker()
    with fault:
        await asyncio.sleep(lasts_s)
    drill.recoveries_s.append(await drill.first_completion())
    drill.faults += 1


async def test_network_reset(own_redis: RedisServer, tenant: str, network: Toxiproxy) -> None:
    resets = sized(short=4, medium=15, long=100)
    async with _drill("network_reset", own_redis, tenant, network) as drill:
        drill.faults_wanted = resets
        while drill.faults < resets:
            await _one_fault(drill, network.resets(), 0.3)
        await drill.finish("every connection is reset (RST) for 0.3 s", resets, RECOVERED)
        assert drill.fleet.deaths == 0, drill.fleet.last_words


async def test_network_half_open(own_redis: RedisServer, tenant: str, network: Toxiproxy) -> None:
    silences = sized(short=2, medium=10, long=100)
    directions: itertools.cycle[Direction] = itertools.cycle(("upstream", "downstream"))
    async with _drill("network_half_open", own_redis, tenant, network) as drill:
        drill.faults_wanted = silences
        while drill.faults < silences:
            await _one_fault(drill, network.silence(next(directions)), COMMAND_TIMEOUT_S * 2.5)
        await drill.finish(
            "connections stay open and nothing gets through any more, to Redis or from it, for 2.5 command timeouts",
            silences,
            RECOVERED,
        )
        assert drill.fleet.deaths == 0, drill.fleet.last_words


async def test_network_latency(own_redis: RedisServer, tenant: str, network: Toxiproxy) -> None:
    rounds = sized(short=1, medium=3, long=20)
    lasts_s = sized(short=3.0, medium=5.0, long=15.0)
    async with _drill("network_latency", own_redis, tenant, network) as drill:
        drill.faults_wanted = rounds
        while drill.faults < rounds:
            await _one_fault(drill, network.latency(150, 100), lasts_s)
        await drill.finish(f"every answer is 50 to 250 ms late, for {lasts_s:g} s", rounds)
        assert drill.fleet.deaths == 0, drill.fleet.last_words
