"""Keys that are not what they should be: each verb finds out before it writes, or does not need them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from headrace.model.config import QueueConfig
from headrace.model.errors import BackendError
from headrace.model.outcomes import Outcome
from headrace.model.task import ClaimedTask
from headrace.queue.keys import FIXED
from tests.support.bench import CONFIG, WORKER, Bench


async def everything_everywhere(bench: Bench) -> ClaimedTask:
    """Bring the queue to where every verb has something to do; returns a task that the worker holds."""
    await bench.register("worker-silent")
    await bench.put("low", count=3)
    await bench.put("high", count=6, max_retries=0)
    tasks = await bench.claim(4)
    await bench.complete(tasks[0])
    await bench.fail_attempt(tasks[1])
    await bench.put("low", delay_s=5)
    bench.clock.advance(CONFIG.result_retention_s)
    await bench.register()
    return tasks[2]


Verb = Callable[[Bench, ClaimedTask], Awaitable[object]]

WRITERS: dict[str, Verb] = {
    "enqueue": lambda bench, held: bench.put(count=2, capabilities="gpu", idempotency_key="order-1"),
    "enqueue delayed": lambda bench, held: bench.put(delay_s=5),
    "claim": lambda bench, held: bench.claim(5),
    "settle": lambda bench, held: bench.settle(held, Outcome.COMPLETED),
    "retry": lambda bench, held: bench.settle(held, Outcome.RETRY),
    "forward": lambda bench, held: bench.queue.forward(),
    "reclaim": lambda bench, held: bench.queue.reclaim(),
    "promote": lambda bench, held: bench.queue.promote(),
    "cancel": lambda bench, held: bench.queue.cancel([held.task_id]),
    "replay": lambda bench, held: bench.queue.replay(),
    "purge": lambda bench, held: bench.queue.purge(),
}

NARROW_WRITERS: dict[str, Verb] = {
    "heartbeat": lambda bench, held: bench.queue.heartbeat(
        WORKER,
        held=[(held.task_id, held.token)],
    ),
    "stop": lambda bench, held: bench.queue.heartbeat(WORKER, status="stopped"),
    "drain": lambda bench, held: bench.queue.drain([WORKER], force=True),
    "pause": lambda bench, held: bench.queue.pause(),
    "resume": lambda bench, held: bench.queue.resume(),
    "define": lambda bench, held: bench.queue.define(
        QueueConfig("verbs", levels=CONFIG.levels[:1] + CONFIG.levels[2:])
    ),
    "watch": lambda bench, held: bench.inspector.task(held.task_id, inbox="hr:inbox:test"),
}


def spoil(bench: Bench, name: str) -> None:
    """Make one of the queue's keys something it is not."""
    bench.raw.delete(bench.key(name))
    bench.raw.set(bench.key(name), "not what you think")


ENQUEUE_NEEDS = ("config", "workers", "stats", "capsets", "events")


def needs(verb: str, key: str) -> bool:
    if verb == "enqueue delayed":
        return key != "capsets" and (key in ENQUEUE_NEEDS or key == "delayed")  # its tasks need no capabilities
    if verb == "enqueue":
        return key in ENQUEUE_NEEDS
    return key != "latencies" or verb in ("settle", "retry")


@pytest.mark.parametrize(("verb", "key"), [(verb, key) for verb in WRITERS for key in FIXED if needs(verb, key)])
async def test_a_key_of_the_wrong_type_is_found_before_the_first_write(bench, verb, key):
    held = await everything_everywhere(bench)
    spoil(bench, key)
    before = bench.dump()
    with pytest.raises(BackendError, match="WRONGTYPE"):
        await WRITERS[verb](bench, held)
    assert bench.dump() == before


@pytest.mark.parametrize("key", FIXED)
@pytest.mark.parametrize("verb", NARROW_WRITERS)
async def test_a_verb_that_needs_few_keys_works_without_the_others_or_writes_nothing(bench, verb, key):
    held = await everything_everywhere(bench)
    spoil(bench, key)
    before = bench.dump()
    try:
        await NARROW_WRITERS[verb](bench, held)
    except BackendError:
        assert bench.dump() == before


@pytest.mark.parametrize("verb", WRITERS | NARROW_WRITERS)
async def test_every_verb_has_something_to_do_in_the_queue_of_these_tests(bench, verb):
    held = await everything_everywhere(bench)
    before = bench.dump()
    await (WRITERS | NARROW_WRITERS)[verb](bench, held)
    assert bench.dump() != before
