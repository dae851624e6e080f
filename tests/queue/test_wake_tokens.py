"""Waking idle workers: as many tokens as there is work and workers for, and no more."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import redis.asyncio

from headrace.model.outcomes import Outcome
from tests.support.bench import CONFIG, OTHER, WORKER, Bench
from tests.support.waiting import eventually


def tokens(bench: Bench, capset: str = "") -> int:
    count: int = bench.raw.llen(bench.keys.wake(capset))
    return count


async def test_a_worker_that_blocks_is_woken_by_an_enqueue(bench):
    async with redis.asyncio.Redis.from_url(bench.owner.url, protocol=2) as sleeper:
        blocked = asyncio.ensure_future(sleeper.blpop([bench.keys.wake("")], timeout=0))

        async def is_blocked() -> bool:
            with bench.owner.client() as client:
                return any(other["cmd"] == "blpop" for other in client.client_list())

        await eventually(is_blocked)
        await bench.put()
        async with asyncio.timeout(30):
            token: Any = await blocked
        assert token[0] == bench.keys.wake("").encode()


async def test_there_are_never_more_tokens_than_workers(bench):
    await bench.put(count=10)
    assert tokens(bench) == 1
    await bench.register(OTHER)
    await bench.put(count=10)
    assert tokens(bench) == 2
    await bench.put(count=10)
    assert tokens(bench) == 2


async def test_one_task_wakes_one_worker(bench):
    await bench.register(OTHER)
    await bench.put()
    assert tokens(bench) == 1


async def test_two_tasks_that_come_one_by_one_wake_two_workers(bench):
    await bench.register(OTHER)
    await bench.put()
    await bench.put()
    assert tokens(bench) == 2


async def test_without_workers_nobody_is_woken(bench):
    await bench.queue.heartbeat(WORKER, status="stopped")
    await bench.put(count=3)
    assert tokens(bench) == 0


async def test_a_claim_that_finds_less_than_it_wanted_clears_the_tokens(bench):
    await bench.register(OTHER)
    await bench.put(count=2)
    assert tokens(bench) == 2
    await bench.claim(2)
    assert tokens(bench) == 2
    await bench.claim(1)
    assert tokens(bench) == 0


async def test_a_delayed_task_wakes_a_worker_if_it_is_due_before_all_others(bench):
    await bench.put(delay_s=60)
    assert tokens(bench) == 1
    await bench.claim(1)
    await bench.put(delay_s=120)
    assert tokens(bench) == 0
    await bench.put(delay_s=10)
    assert tokens(bench) == 1


@pytest.mark.parametrize("outcome", [Outcome.HANDED_BACK, Outcome.RETRY])
async def test_a_task_that_comes_back_wakes_a_worker(bench, outcome):
    await bench.put()
    task = await bench.claim_one()
    await bench.claim(1)
    assert tokens(bench) == 0
    await bench.settle(task, outcome, after_s=0)
    assert tokens(bench) == 1


async def test_forwarded_and_replayed_tasks_wake_workers(bench):
    task_id = await bench.put_one(delay_s=5, max_retries=0)
    await bench.claim(1)
    bench.clock.advance(5)
    await bench.queue.forward()
    assert tokens(bench) == 1
    await bench.fail_attempt(await bench.claim_one())
    await bench.claim(1)
    await bench.queue.replay([task_id])
    assert tokens(bench) == 1


async def test_a_new_capability_set_is_announced_to_everyone_once(bench):
    await bench.register(OTHER, capabilities="gpu")
    await bench.put(capabilities="gpu")
    # Nobody listens on the new list yet, so all that listen on the common one are told.
    assert (tokens(bench), tokens(bench, "gpu")) == (2, 1)
    await bench.claim(1)
    await bench.claim(2, worker=OTHER)
    assert (tokens(bench), tokens(bench, "gpu")) == (0, 0)
    await bench.put(capabilities="gpu")
    assert (tokens(bench), tokens(bench, "gpu")) == (0, 1)


async def test_a_capability_set_that_was_forgotten_is_announced_anew(bench):
    await bench.register(OTHER, capabilities="gpu")
    await bench.put(capabilities="gpu")
    await bench.claim(2, worker=OTHER)
    await bench.queue.purge()
    assert (await bench.ask(worker=OTHER)).capsets == [""]
    await bench.put(capabilities="gpu")
    assert (tokens(bench), tokens(bench, "gpu")) == (2, 1)


async def test_a_dry_claim_leaves_tokens_of_sets_the_worker_does_not_cover(bench):
    await bench.register(OTHER, capabilities="gpu")
    await bench.put(capabilities="gpu")
    await bench.claim(1)
    assert (tokens(bench), tokens(bench, "gpu")) == (0, 1)


async def test_resuming_and_a_new_configuration_wake_everyone(bench):
    await bench.register(OTHER)
    await bench.claim(1)
    await bench.queue.resume()
    assert tokens(bench) == 2
    await bench.claim(1)
    assert tokens(bench) == 0
    await bench.queue.define(msgspec.structs.replace(CONFIG, repair_limit=10))
    assert tokens(bench) == 2
