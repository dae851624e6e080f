"""The checker can go red: one thing is broken by hand, and it finds out.

A checker that cannot fail proves nothing. What is broken here is what the drills look for: a task that is lost, one
that is in two places or in none, a settle that counts twice, a settle that comes too late and is accepted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from headrace import Headrace
from headrace.model.outcomes import Outcome
from headrace.queue import scripts
from tests.chaos.checker import Checker, Violation
from tests.chaos.drill_app import queue_config
from tests.chaos.producing import Ledger
from tests.support.bench import WORKER, Bench, open_bench
from tests.support.redis_server import HOST, RedisServer

LEASE_S = 10.0
TOKEN_CHECK = ("elseif task.token ~= token then", "elseif false then")
STATE_CHECK = ("elseif task.state ~= 'executing' then", "elseif false then")


@pytest.fixture
async def bench(frozen_server: RedisServer, tenant: str) -> AsyncIterator[Bench]:
    config = queue_config(lease_s=LEASE_S, max_crashes=3)
    async with open_bench(frozen_server, tenant, config, WORKER) as opened:
        yield opened


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
async def checker(frozen_server: RedisServer, tenant: str, ledger: Ledger) -> AsyncIterator[Checker]:
    app = Headrace(frozen_server.url, tenant=tenant, queues=[queue_config(lease_s=LEASE_S, max_crashes=3)])
    client = Redis(host=HOST, port=frozen_server.port, protocol=2)
    yield Checker(app, client, ledger)
    await client.aclose()
    await app.aclose()


@pytest.fixture
def fresh_scripts() -> Iterator[None]:
    """Scripts are put together once per process; a broken one must not stay."""
    scripts.script.cache_clear()
    yield
    scripts.script.cache_clear()


def break_settle(monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    read = scripts._read
    broken = read("settle.lua")
    for text, replacement in changes:
        assert broken.count(text) == 1, "settle.lua no longer has the line that this test breaks"
        broken = broken.replace(text, replacement)
    monkeypatch.setattr(scripts, "_read", lambda asked: broken if asked == "settle.lua" else read(asked))


async def put(bench: Bench, ledger: Ledger, count: int) -> list[str]:
    ids = await bench.put("high", count=count)
    ledger.add_confirmed(ids)
    return ids


async def test_it_is_green_when_nothing_is_broken(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    await put(bench, ledger, 5)
    await checker.look()
    first, second, _ = await bench.claim(3)
    await checker.look()
    await bench.settle(first, Outcome.COMPLETED, body="1")
    await bench.fail_attempt(second)
    await checker.look()
    bench.clock.advance(LEASE_S + 1)
    for _ in range(2):
        for task in await bench.claim(4):
            await bench.settle(task, Outcome.COMPLETED, body=str(task.attempt))
        bench.clock.advance(2)  # the third one's lease was taken back, and its backoff passes
    await checker.look()
    accounts = await checker.account()
    await checker.check_attempts(ledger.confirmed)
    assert (accounts.completed, accounts.lost, accounts.settled_twice) == (5, 0, 0)
    assert (checker.looks, checker.looks_in_vain) == (4, 0)


async def test_a_deleted_task(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    ids = await put(bench, ledger, 5)
    bench.raw.delete(bench.keys.task(ids[3]))
    with pytest.raises(Violation, match=f"{ids[3]} was confirmed and is lost"):
        await checker.look()


async def test_a_settled_task_that_is_deleted_later(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    (task_id,) = await put(bench, ledger, 1)
    await bench.complete(await bench.claim_one())
    await checker.look()
    bench.raw.delete(bench.keys.task(task_id))
    with pytest.raises(Violation, match="was confirmed and is lost"):
        await checker.look()


async def test_a_queue_that_is_gone(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    await put(bench, ledger, 2)
    await checker.look()
    bench.raw.delete(*bench.raw.keys(f"{bench.keys.prefix}*"))
    with pytest.raises(Violation, match="the queue itself is gone"):
        await checker.look()


async def test_a_task_in_no_place(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    ids = await put(bench, ledger, 5)
    bench.raw.zrem(bench.key("ready:high:"), ids[0])
    with pytest.raises(Violation, match="5 tasks were stored, and 4 are in a place"):
        await checker.look()


async def test_a_task_in_the_wrong_place(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    ids = await put(bench, ledger, 5)
    bench.raw.zrem(bench.key("ready:high:"), ids[0])
    bench.raw.zadd(bench.key("delayed"), {ids[0]: bench.clock.now_us + 1e9})
    with pytest.raises(Violation, match=f"{ids[0]} is queued and is in: delayed"):
        await checker.look()


async def test_a_task_that_was_confirmed_and_never_stored(checker: Checker, bench: Bench, ledger: Ledger) -> None:
    await put(bench, ledger, 2)
    ledger.add_confirmed(["01a1ec28-5976-7aaf-852b-7886559b091c"])
    with pytest.raises(Violation, match="3 tasks were confirmed, and 2 were stored"):
        await checker.look()


async def test_a_task_that_was_stored_twice(checker: Checker, bench: Bench, ledger: Ledger) -> None:
    await put(bench, ledger, 2)
    await bench.put("high")
    with pytest.raises(Violation, match="2 tasks were sent, and 3 were stored"):
        await checker.look()


@pytest.mark.parametrize("by", [1, -1])
async def test_a_settle_that_is_miscounted(by: int, bench: Bench, checker: Checker, ledger: Ledger) -> None:
    await put(bench, ledger, 3)
    await bench.complete(await bench.claim_one())
    await checker.look()
    bench.raw.hincrby(bench.key("stats"), "completed", by)
    with pytest.raises(Violation, match=f"{1 + by} settles were counted, and 1 tasks are settled"):
        await checker.look()


@pytest.mark.usefixtures("fresh_scripts")
async def test_a_settle_that_is_applied_twice(
    bench: Bench, checker: Checker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_settle(monkeypatch, TOKEN_CHECK, STATE_CHECK)
    await put(bench, ledger, 3)
    task = await bench.claim_one()
    await bench.complete(task)
    await checker.look()
    await bench.complete(task)
    with pytest.raises(Violation, match="2 settles were counted, and 1 tasks are settled"):
        await checker.look()


@pytest.mark.usefixtures("fresh_scripts")
async def test_a_settle_without_fencing(
    bench: Bench, checker: Checker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first holder returns after its lease was taken, and settles what the second one works on."""
    break_settle(monkeypatch, TOKEN_CHECK)
    await put(bench, ledger, 1)
    stale = await bench.claim_one()
    bench.clock.advance(LEASE_S + 1)
    await bench.claim(0)
    bench.clock.advance(2)
    held = await bench.claim_one()
    assert (stale.task_id, held.attempt) == (held.task_id, 2)
    await bench.settle(stale, Outcome.COMPLETED, body=str(stale.attempt))
    await checker.look()
    with pytest.raises(Violation, match="was settled by attempt 1 while attempt 2 held it"):
        await checker.check_attempts(ledger.confirmed)


async def test_unbroken_fencing_refuses_the_same(bench: Bench, checker: Checker, ledger: Ledger) -> None:
    await put(bench, ledger, 1)
    stale = await bench.claim_one()
    bench.clock.advance(LEASE_S + 1)
    await bench.claim(0)
    bench.clock.advance(2)
    held = await bench.claim_one()
    await bench.settle(stale, Outcome.COMPLETED, body=str(stale.attempt))
    await bench.settle(held, Outcome.COMPLETED, body=str(held.attempt))
    await checker.look()
    await checker.check_attempts(ledger.confirmed)
