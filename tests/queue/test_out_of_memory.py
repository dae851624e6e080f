"""A server whose memory is full: no new tasks, and everything else goes on."""

from __future__ import annotations

import pytest

from headrace.model.errors import OutOfMemory
from headrace.model.outcomes import Outcome, SettleStatus
from tests.support.bench import CONFIG, WORKER, open_bench
from tests.support.topology import installed


async def test_with_memory_exhausted_new_tasks_are_refused_whole_and_the_rest_goes_on(topology, tenant):
    with installed(topology, frozen=True) as server:
        async with open_bench(server, tenant, CONFIG, WORKER) as bench:
            owner = bench.owner.client()
            await bench.put(count=5, max_retries=0)
            done, dead, cancelled = await bench.claim(3)
            await bench.fail_attempt(dead)
            owner.config_set("maxmemory", "1")

            before = bench.dump()
            with pytest.raises(OutOfMemory):
                await bench.put(count=3, idempotency_key="order-1", capabilities="gpu")
            with pytest.raises(OutOfMemory):
                await bench.queue.replay()
            assert bench.dump() == before

            assert (await bench.queue.heartbeat(WORKER, held=[(done.task_id, done.token)])).lost == []
            await bench.complete(done)
            assert await bench.queue.cancel([cancelled.task_id]) == ["cancelling"]
            assert await bench.settle(cancelled, Outcome.CANCELLED) is SettleStatus.SETTLED
            assert len(await bench.claim(5)) == 2
            server.clock.advance(CONFIG.lease_s)
            assert (await bench.queue.reclaim())[0] == 2
            server.clock.advance(CONFIG.result_retention_s)
            assert (await bench.queue.purge())[0] == 2
            await bench.inspector.stats()

            owner.config_set("maxmemory", "0")
            await bench.put()
            owner.close()
