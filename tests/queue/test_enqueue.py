"""What enqueuing accepts, and that what it refuses leaves nothing behind."""

from __future__ import annotations

import pytest

from headrace.model.errors import InvalidInput, InvalidPayload, UnknownLevel
from tests.support.bench import new_task


async def test_an_enqueue_of_nothing_is_nothing(bench):
    before = bench.dump()
    assert await bench.queue.enqueue([]) == []
    assert bench.dump() == before


async def test_a_task_without_a_level_gets_the_default_one(bench):
    assert (await bench.record(await bench.put_one())).priority == "medium"


async def test_a_bulk_of_several_calls_arrives_whole_and_in_order(bench):
    ids = await bench.put("high", count=2500)
    received = [task.task_id for _ in range(3) for task in await bench.claim(1000)]
    assert received == ids


async def test_a_payload_that_is_too_large_is_refused_and_leaves_nothing(bench_with):
    async with bench_with(max_payload_bytes=100) as bench:
        good, large = new_task(message="x" * 100), new_task(message="x" * 101)
        before = bench.dump()
        with pytest.raises(InvalidPayload, match=r"^payload: is 101 bytes as JSON; at most 100 are allowed$"):
            await bench.queue.enqueue([large])
        with pytest.raises(
            InvalidPayload, match=r"^tasks\[1\]\.payload: is 101 bytes as JSON; at most 100 are allowed$"
        ):
            await bench.queue.enqueue([good, large])
        assert bench.dump() == before
        await bench.queue.enqueue([good])


async def test_the_size_is_counted_in_bytes_and_not_in_characters(bench_with):
    async with bench_with(max_payload_bytes=100) as bench:
        with pytest.raises(InvalidPayload, match="is 120 bytes as JSON"):
            await bench.queue.enqueue([new_task(message="ä" * 60)])


async def test_an_unknown_level_is_refused_and_leaves_nothing(bench):
    before = bench.dump()
    expected = r"^priority: queue 'verbs' has no level 'urgent'; it has high, medium, low$"
    with pytest.raises(UnknownLevel, match=expected):
        await bench.put("urgent")
    with pytest.raises(UnknownLevel, match=r"^tasks\[2\]\.priority: "):
        await bench.queue.enqueue([new_task("high"), new_task("low"), new_task("urgent")])
    assert bench.dump() == before


async def test_a_delay_past_the_limit_is_refused_and_leaves_nothing(bench_with):
    async with bench_with(max_delay_s=3600) as bench:
        before = bench.dump()
        with pytest.raises(InvalidInput, match=r"^delay_s: is more than the queue's max_delay_s of 3600 seconds$"):
            await bench.put(delay_s=3600.000001)
        assert bench.dump() == before
        await bench.put(delay_s=3600)


@pytest.mark.parametrize("fields", [{"level": "urgent"}, {"message": "x" * (1 << 20) + "x"}, {"delay_s": 400 * 86_400}])
async def test_a_bad_task_at_the_end_of_a_large_bulk_keeps_all_of_it_out(bench, fields):
    tasks = [new_task("high") for _ in range(2500)] + [new_task(**fields)]
    before = bench.dump()
    with pytest.raises(InvalidInput, match=r"^tasks\[2500\]\."):
        await bench.queue.enqueue(tasks)
    assert bench.dump() == before


async def test_the_65th_capability_set_is_refused_and_leaves_nothing(bench):
    # The empty set is one of the 64.
    await bench.queue.enqueue([new_task(capabilities=f"cap-{i}") for i in range(63)])
    before = bench.dump()
    with pytest.raises(InvalidInput, match=r"^required_capabilities: would be one more than the 64 different"):
        await bench.put(capabilities="cap-63")
    assert bench.dump() == before
    await bench.put(capabilities="cap-0")
