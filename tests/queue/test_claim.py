"""What a claim answers: tasks, tokens, and what the worker is to wait for."""

from __future__ import annotations

from headrace.model.outcomes import Outcome
from tests.support.bench import OTHER, WORKER, new_task


async def test_a_worker_nobody_knows_gets_nothing(bench):
    await bench.put()
    reply = await bench.ask(worker="stranger")
    assert (reply.status, reply.tasks) == ("unregistered", [])


async def test_a_claim_of_nothing_takes_nothing(bench):
    await bench.put()
    assert await bench.claim(0) == []
    assert (await bench.inspector.stats()).waiting == 1


async def test_a_claim_says_when_the_next_delayed_task_is_due(bench):
    assert (await bench.ask()).next_due_in_s is None
    await bench.put(delay_s=60)
    await bench.put(delay_s=20)
    bench.clock.advance(5)
    assert (await bench.ask()).next_due_in_s == 15


async def test_a_claim_says_which_capability_sets_to_listen_on(bench):
    await bench.register(OTHER, capabilities="gpu,ssd")
    await bench.queue.enqueue([new_task(capabilities=capset) for capset in ("gpu", "gpu,ssd", "fpga", "fpga,gpu")])
    assert sorted((await bench.ask()).capsets) == [""]
    assert sorted((await bench.ask(5, worker=OTHER)).capsets) == ["", "gpu", "gpu,ssd"]


async def test_a_claim_that_gets_all_it_asked_for_says_nothing_of_what_to_wait_for(bench):
    await bench.put(delay_s=5)
    await bench.put()
    full = await bench.ask()
    assert (len(full.tasks), full.capsets, full.next_repair_in_s) == (1, [], None)


async def test_an_id_whose_task_was_deleted_by_hand_is_dropped(bench):
    gone, kept = await bench.put(count=2)
    bench.raw.delete(bench.keys.task(gone))
    assert [task.task_id for task in await bench.claim(2)] == [kept]
    stats = await bench.inspector.stats()
    assert (stats.waiting, stats.counters["dangling"]) == (0, 1)


async def test_tokens_rise_with_every_claim_of_a_task(bench):
    await bench.put()
    tokens = []
    for _ in range(4):
        task = await bench.claim_one()
        tokens.append(task.token)
        await bench.settle(task, Outcome.HANDED_BACK)
    assert tokens == sorted(set(tokens))


async def test_a_claim_that_took_the_queue_for_a_strict_one_gets_its_tasks_all_the_same(bench_with):
    async with bench_with(selection="weighted") as bench:
        await bench.put(count=3)
        reply = await bench.queue.claim(WORKER, 5, number=1, selection="strict")
        assert len(reply.tasks) == 3


async def test_a_claim_says_how_long_a_task_has_waited_since_its_place_in_the_line(bench):
    await bench.put()
    bench.clock.advance(7)
    reply = await bench.ask()
    assert (reply.at_s, [task.waited_s for task in reply.tasks]) == (bench.now_s, [7])


async def test_what_is_not_yet_due_does_not_wait_and_a_retry_keeps_its_place(bench):
    await bench.put(delay_s=60)
    bench.clock.advance(63)
    first = await bench.claim_one()
    assert (first.waited_s, bench.now_s - first.created_at_s) == (3, 63)
    bench.clock.advance(5)
    await bench.settle(first, Outcome.RETRY, after_s=10)
    bench.clock.advance(11)
    assert (await bench.claim_one()).waited_s == 3 + 5 + 11


async def test_an_answer_that_is_asked_for_again_does_not_count_the_time_that_it_was_lost_for(bench):
    await bench.put()
    bench.clock.advance(2)
    for _ in range(2):
        (task,) = (await bench.queue.claim(WORKER, 1, number=1)).tasks
        assert task.waited_s == 2
        bench.clock.advance(1)
