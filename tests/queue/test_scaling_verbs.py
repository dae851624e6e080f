"""What a scaler asks of a queue: a bell, how long tasks take, workers that go, and newcomers that are kept out."""

from __future__ import annotations

import contextlib

import pytest

from headrace.model.errors import Deposed, UnknownQueue
from headrace.model.outcomes import Outcome, Settlement
from headrace.model.states import WorkerState
from headrace.queue.bells import Bells
from headrace.queue.connection import Connection
from headrace.queue.queue import Queue
from headrace.queue.settings import RedisSettings
from headrace.queue.transport import Transport
from tests.support.bench import CONFIG, OTHER, WORKER, new_task, open_bench
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

PATIENCE_S = 30.0


@contextlib.asynccontextmanager
async def listening(bench):
    """The rings of this queue's bell, as an operator hears them; the first is that of beginning to listen."""
    connection = Connection(RedisSettings.from_url(bench.server.url))
    await connection.open()
    bells, rings = Bells(connection), []
    bells.listen(bench.keys, lambda: rings.append(bench.now_s))
    try:
        await heard(rings, 1)
        yield rings
    finally:
        await bells.aclose()
        await connection.aclose()


async def heard(rings, number):
    async def as_often():
        return len(rings) >= number

    await eventually(as_often, PATIENCE_S, f"the bell was not heard {number} times")


async def room(bench):
    return (await bench.inspector.pulse()).room


# ── the bell ─────────────────────────────────────────────────────────────────────────────────────────


async def test_the_bell_rings_once_when_more_comes_than_there_is_room_for(bench):
    async with listening(bench) as rings:
        assert await bench.queue.hang_bell(5, 0)
        await bench.put(count=3)
        assert await room(bench) == 2
        await bench.put(count=2)
        assert await room(bench) == 0
        assert len(rings) == 1
        await bench.put(count=1)
        await heard(rings, 2)
        assert await room(bench) is None
        await bench.put(count=10)
        # Hung again it rings again; if the ten had rung, they would have been heard before this one.
        assert await bench.queue.hang_bell(0, 16)
        await bench.put(count=1)
        await heard(rings, 3)
        assert len(rings) == 3


async def test_a_burst_of_many_calls_is_one_ring(bench):
    async with listening(bench) as rings:
        await bench.queue.hang_bell(0, 0)
        for _ in range(20):
            await bench.put(count=5)
        await bench.queue.hang_bell(0, 100)
        await bench.put()
        await heard(rings, 3)
        assert len(rings) == 3


async def test_what_came_while_the_room_was_found_out_is_taken_off_it(bench):
    await bench.put(count=4)
    assert await bench.queue.hang_bell(5, 1)
    assert await room(bench) == 2


async def test_too_late_to_hang_it_when_more_has_come_already(bench):
    await bench.put(count=4)
    assert not await bench.queue.hang_bell(2, 1)
    assert await room(bench) is None


async def test_what_was_taken_meanwhile_makes_no_more_room(bench):
    await bench.put(count=4)
    await bench.claim(4)
    assert await bench.queue.hang_bell(5, 4)
    assert await room(bench) == 5


async def test_the_bell_is_taken_down(bench):
    await bench.queue.hang_bell(5, 0)
    assert await bench.queue.hang_bell(None, 0)
    assert await room(bench) is None
    await bench.put(count=100)


async def test_a_task_that_becomes_due_rings_and_one_that_is_delayed_does_not(bench):
    async with listening(bench) as rings:
        await bench.queue.hang_bell(0, 0)
        await bench.put(delay_s=30.0)
        assert await room(bench) == 0
        bench.clock.advance(31)
        await bench.queue.forward()
        await heard(rings, 2)


async def test_a_task_that_is_handed_back_rings(bench):
    await bench.put()
    task = await bench.claim_one()
    async with listening(bench) as rings:
        await bench.queue.hang_bell(0, 0)
        await bench.settle(task, Outcome.HANDED_BACK)
        await heard(rings, 2)


async def test_a_duplicate_takes_no_room(bench):
    await bench.queue.hang_bell(3, 0)
    await bench.put(idempotency_key="once")
    await bench.put(idempotency_key="once")
    assert await room(bench) == 2


async def test_a_producer_that_may_not_publish_enqueues_all_the_same(tenant):
    with RedisServer() as server:
        async with open_bench(server, tenant, CONFIG) as bench:
            await bench.queue.hang_bell(0, 0)
            bench.raw.acl_setuser("narrow", enabled=True, nopass=True, keys=["*"], categories=["+@all"], channels=[])
            connection = Connection(RedisSettings.from_url(server.url.replace("://", "://narrow:any@", 1)))
            await connection.open()
            try:
                producer = Queue(Transport(connection), bench.tenant, CONFIG.name)
                await producer.enqueue([new_task()])
            finally:
                await connection.aclose()
            pulse = await bench.inspector.pulse()
            assert (pulse.depth, pulse.room) == (1, None)


async def test_a_deposed_operator_hangs_no_bell(bench):
    new = Queue(bench.transport, bench.tenant, CONFIG.name, epoch=2)
    await new.define(CONFIG, owner="operator", generation=1, holder="shop/orders/uid")
    old = Queue(bench.transport, bench.tenant, CONFIG.name, epoch=1)
    with pytest.raises(Deposed):
        await old.hang_bell(0, 0)
    with pytest.raises(Deposed):
        await old.hold_newcomers("pool-1", 30)


async def test_no_queue_no_bell(bench):
    with pytest.raises(UnknownQueue):
        await Queue(bench.transport, bench.tenant, "unheard-of").hang_bell(0, 0)


# ── what a decision needs to know ────────────────────────────────────────────────────────────────────


async def test_a_pulse_tells_what_waits_by_capabilities(bench):
    await bench.put("high", count=2)
    await bench.put("high", count=3, capabilities="gpu")
    await bench.put("low", capabilities="disk,gpu")
    pulse = await bench.inspector.pulse()
    assert sorted(pulse.waiting) == [("high", "", 2), ("high", "gpu", 3), ("low", "disk,gpu", 1)]
    assert pulse.depth == 6


async def test_a_pulse_counts_what_is_due_soon(bench):
    for delay_s in (1.0, 4.0, 60.0):
        await bench.put(delay_s=delay_s)
    assert (await bench.inspector.pulse(soon_s=5)).due_soon == 2
    assert (await bench.inspector.pulse()).due_soon == 0
    bench.clock.advance(2)
    assert (await bench.inspector.pulse()).due_soon == 1


async def test_a_pulse_counts_claims(bench):
    await bench.put(count=3)
    await bench.claim(2)
    assert (await bench.inspector.pulse()).claimed == 2


async def settle_after(bench, ran):
    await bench.put()
    task = await bench.claim_one()
    await bench.queue.settle([Settlement(task.task_id, task.token, Outcome.COMPLETED, "null")], ran)


async def test_how_long_handlers_take_is_known_by_level(bench):
    assert (await bench.inspector.pulse()).service == ()
    await settle_after(bench, ["high", 2, 3_000_000, "low", 1, 500_000])
    await settle_after(bench, ["high", 1, 6_000_000])
    assert (await bench.inspector.pulse()).service == (("high", 3, pytest.approx(3.0)), ("low", 1, pytest.approx(0.5)))


async def test_how_long_handlers_took_long_ago_is_forgotten(bench):
    await settle_after(bench, ["high", 10_000, 10_000 * 1_000_000])
    for _ in range(20):
        await settle_after(bench, ["high", 5_000, 5_000 * 10_000_000])
    ((_, runs, mean_s),) = (await bench.inspector.pulse()).service
    assert runs <= 10_000
    assert mean_s > 9.9


# ── who goes ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_that_has_worked_since_is_not_drained(bench):
    seen = (await bench.worker()).idle_since_s
    await bench.put()
    bench.clock.advance(1)
    await bench.complete(await bench.claim_one())
    assert await bench.queue.drain([WORKER], idle_since_s=[seen]) == ["not_idle_long_enough"]
    assert (await bench.worker()).state is WorkerState.ACTIVE
    now_idle_since = (await bench.worker()).idle_since_s
    assert await bench.queue.drain([WORKER], idle_since_s=[now_idle_since]) == ["draining"]


async def test_each_worker_is_judged_by_its_own_moment(bench):
    bench.clock.advance(1)
    await bench.register(OTHER)
    moments = [(await bench.worker(name)).idle_since_s for name in (WORKER, OTHER)]
    assert moments[0] != moments[1]
    assert await bench.queue.drain([OTHER, WORKER], idle_since_s=moments) == ["not_idle_long_enough"] * 2
    assert await bench.queue.drain([WORKER, OTHER], idle_since_s=moments) == ["draining"] * 2


# ── who comes ────────────────────────────────────────────────────────────────────────────────────────


async def join(bench, worker, host):
    await bench.queue.heartbeat(worker, capacity=2, host=host)


async def test_newcomers_of_a_deployment_that_is_made_smaller_are_kept_out(bench):
    await bench.put(count=2)
    await bench.queue.hold_newcomers("pool-1a2b", 30)
    await join(bench, "late", "pool-1a2b-7d9f-x2x4z")
    await join(bench, "elsewhere", "pool-3c4d-7d9f-x2x4z")
    assert (await bench.worker("late")).state is WorkerState.DRAINING
    assert (await bench.worker("elsewhere")).state is WorkerState.ACTIVE
    assert (await bench.ask(1, worker="late")).status == "draining"
    assert len(await bench.claim(1, worker="elsewhere")) == 1
    await bench.queue.undrain(["late"])
    assert len(await bench.claim(1, worker="late")) == 1


async def test_who_was_there_before_stays(bench):
    await join(bench, "early", "pool-1a2b-7d9f-x2x4z")
    await bench.queue.hold_newcomers("pool-1a2b", 30)
    await join(bench, "early", "pool-1a2b-7d9f-x2x4z")
    assert (await bench.worker("early")).state is WorkerState.ACTIVE


async def test_newcomers_are_let_in_again_when_told_so_or_after_the_time(bench):
    await bench.queue.hold_newcomers("pool-1a2b", 30)
    await bench.queue.hold_newcomers("pool-1a2b", 0)
    await join(bench, "first", "pool-1a2b-7d9f-aaaaa")
    await bench.queue.hold_newcomers("pool-1a2b", 30)
    bench.clock.advance(31)
    await join(bench, "second", "pool-1a2b-7d9f-bbbbb")
    for worker in ("first", "second"):
        assert (await bench.worker(worker)).state is WorkerState.ACTIVE


@pytest.mark.parametrize("host", ["", "laptop", "two-parts", "-", "--", "a--b"])
async def test_a_host_that_is_no_pod_is_let_in(bench, host):
    await bench.queue.hold_newcomers("pool-1a2b", 30)
    await join(bench, "by-hand", host)
    assert (await bench.worker("by-hand")).state is WorkerState.ACTIVE
