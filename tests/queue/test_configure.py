"""Defining a queue, and defining it anew while it is in use."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.model.config import Level, Promotion, QueueConfig
from headrace.model.errors import ConfigConflict
from headrace.model.outcomes import Outcome
from headrace.queue import wire
from headrace.queue.keys import queue_names_key
from tests.support.bench import CONFIG


async def test_defining_the_same_queue_again_writes_nothing(bench):
    before = bench.dump()
    assert await bench.queue.define(CONFIG) == CONFIG
    assert bench.dump() == before


async def test_a_definition_is_what_can_be_read_back(bench_with):
    settings: dict[str, Any] = {
        "levels": (Level("fast", weight=0.3, max_retries=0, timeout_s=1.5), Level("slow", weight=0.1)),
        "default_level": "slow",
        "selection": "weighted",
        "promotions": (Promotion("slow", "fast", after_s=0.25, batch=7),),
        "dead_letter_retention_s": None,
        "events_max": 0,
    }
    async with bench_with(**settings) as bench:
        assert await bench.queue.config() == QueueConfig("verbs", **settings)


async def test_a_defined_queue_is_listed_under_its_tenant(bench):
    assert bench.raw.smembers(queue_names_key(bench.tenant)) == {b"verbs"}


async def test_what_the_operator_defined_is_not_overwritten_by_an_app(bench):
    operators = msgspec.structs.replace(CONFIG, lease_s=60)
    assert await bench.queue.define(operators, owner="operator", generation=3) == operators
    assert await bench.queue.define(CONFIG) == operators
    assert await bench.queue.config() == operators


async def test_what_an_older_program_stored_is_put_into_the_form_the_scripts_read(bench):
    operators = msgspec.structs.replace(CONFIG, lease_s=60)
    await bench.queue.define(operators, owner="operator", generation=3)
    bench.raw.hset(bench.key("config"), mapping={"format": 0, "level_names": msgspec.msgpack.encode([])})
    assert await bench.queue.define(CONFIG) == operators
    assert bench.raw.hmget(bench.key("config"), "owner", "generation", "format") == [
        b"operator",
        b"3",
        str(wire.CONFIG_FORMAT).encode(),
    ]
    await bench.put()
    assert len(await bench.claim(1)) == 1


async def test_fields_that_a_newer_program_stored_are_passed_over(bench):
    stored = msgspec.json.decode(bench.raw.hget(bench.key("config"), "json"))
    bench.raw.hset(bench.key("config"), "json", msgspec.json.encode({**stored, "from_the_future": 1}))
    assert await bench.queue.config() == CONFIG


async def test_an_older_generation_of_the_operator_does_not_overwrite_a_newer_one(bench):
    newer = msgspec.structs.replace(CONFIG, lease_s=60)
    older = msgspec.structs.replace(CONFIG, lease_s=50)
    newest = msgspec.structs.replace(CONFIG, lease_s=70)
    await bench.queue.define(newer, owner="operator", generation=3)
    assert await bench.queue.define(older, owner="operator", generation=2) == newer
    assert await bench.queue.define(newest, owner="operator", generation=4) == newest


@pytest.mark.parametrize("capabilities", ["", "gpu"])
async def test_a_level_in_which_tasks_wait_cannot_go(bench, capabilities):
    await bench.put("low", count=2, capabilities=capabilities)
    before = bench.dump()
    with pytest.raises(ConfigConflict, match=r"^levels: 'low' cannot go while 2 tasks wait in it; let them drain or"):
        await bench.queue.define(QueueConfig("verbs", levels=CONFIG.levels[:2]))
    assert bench.dump() == before


async def test_tasks_of_a_level_that_went_fall_to_the_lowest_one(bench_with):
    """Tasks that are delayed or running do not keep a level alive; they must not be lost with it."""
    levels = (Level("a"), Level("b"), Level("c"))
    async with bench_with(levels=levels) as bench:
        running = [await bench.put_one("a") for _ in range(2)]
        retried, handed_back = await bench.claim(2)
        scheduled = await bench.put_one("a", delay_s=10)
        await bench.queue.define(QueueConfig("verbs", levels=levels[1:]))

        await bench.settle(retried, Outcome.RETRY, after_s=0)
        await bench.settle(handed_back, Outcome.HANDED_BACK)
        bench.clock.advance(10)
        await bench.queue.forward()
        tasks = await bench.claim(5)
        assert sorted(task.task_id for task in tasks) == sorted([*running, scheduled])
        assert {task.level for task in tasks} == {"c"}


async def test_a_promoted_task_whose_new_level_went_can_be_cancelled_where_it_waits(bench_with):
    levels = (Level("a"), Level("b"), Level("c"))
    promotions = (Promotion("c", "b", after_s=60),)
    async with bench_with(levels=levels, promotions=promotions) as bench:
        task_id = await bench.put_one("c")
        bench.clock.advance(60)
        await bench.queue.promote()
        task = await bench.claim_one()
        await bench.queue.define(QueueConfig("verbs", levels=(levels[0], levels[2])))
        await bench.settle(task, Outcome.HANDED_BACK)
        assert (await bench.record(task_id)).effective_priority == "c"
        assert await bench.queue.cancel([task_id]) == ["cancelled"]
        assert await bench.claim(1) == []
