"""Looking at tasks: their place in the queue, and word of their end."""

from __future__ import annotations

import pytest

from headrace.model.errors import TaskNotFound
from headrace.model.ids import new_task_id


@pytest.mark.parametrize("task_id", ["", "x", "{other/queue}:task:1", "0" * 36])
async def test_what_is_no_task_id_is_not_found(bench, task_id):
    with pytest.raises(TaskNotFound):
        await bench.record(task_id)


async def test_a_task_that_is_not_waiting_has_the_position_zero(bench):
    scheduled = await bench.put_one(delay_s=5)
    running = await bench.put_one()
    await bench.claim_one()
    assert [await bench.inspector.position(task_id) for task_id in (scheduled, running)] == [0, 0]
    with pytest.raises(TaskNotFound):
        await bench.inspector.position(new_task_id())


async def test_with_weighted_selection_the_position_is_that_within_the_level(bench_with):
    async with bench_with(selection="weighted") as bench:
        await bench.put("high", count=5)
        low = await bench.put("low", count=2)
        assert [await bench.inspector.position(task_id) for task_id in low] == [1, 2]


async def test_whoever_watches_a_task_is_told_once_when_it_ends(bench):
    task_id = await bench.put_one()
    with bench.raw.pubsub() as channel:
        channel.subscribe("hr:inbox:test")
        assert channel.get_message(timeout=30)["type"] == "subscribe"
        for _ in range(2):
            await bench.inspector.task(task_id, inbox="hr:inbox:test")
        await bench.complete(await bench.claim_one())
        bench.raw.publish("hr:inbox:test", "the end")
        heard = [channel.get_message(timeout=30)["data"] for _ in range(2)]
    assert heard == [task_id.encode(), b"the end"]
