"""The set of what is to be looked at again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from headrace_operator.work import Work
from tests.support.waiting import eventually


@contextlib.asynccontextmanager
async def running(work, look, workers=4):
    task = asyncio.create_task(work.run(look, workers=workers))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def idle(work) -> None:
    async def is_idle() -> bool:
        return work.is_idle

    await eventually(is_idle, 10, "the work did not come to rest")


async def test_what_is_added_many_times_is_looked_at_once():
    work: Work[str] = Work()
    seen: Counter[str] = Counter()

    async def look(key):
        seen[key] += 1

    for _ in range(10):
        work.add("a")
        work.add("b")
    async with running(work, look):
        await idle(work)
    assert seen == {"a": 1, "b": 1}


async def test_a_key_is_never_looked_at_twice_at_once_and_what_comes_meanwhile_is_not_lost():
    work: Work[str] = Work()
    at_once = most = looks = 0
    go_on = asyncio.Event()

    async def look(key):
        nonlocal at_once, most, looks
        at_once += 1
        most = max(most, at_once)
        await go_on.wait()
        at_once -= 1
        looks += 1

    work.add("a")
    async with running(work, look):
        await asyncio.sleep(0.05)
        work.add("a")
        work.add("a")
        await asyncio.sleep(0.05)
        assert looks == 0
        go_on.set()
        await idle(work)
    assert (looks, most) == (2, 1)


async def test_a_failure_is_tried_again_and_does_not_hold_up_the_others():
    work: Work[str] = Work()
    seen: Counter[str] = Counter()

    async def look(key):
        seen[key] += 1
        if key == "bad" and seen[key] < 3:
            raise RuntimeError("not yet")

    work.add("bad")
    work.add("good")

    async def came_right() -> bool:
        return seen == {"bad": 3, "good": 1}

    async with running(work, look, workers=1):
        await eventually(came_right, 30, "it was not tried again")


async def test_it_is_looked_at_again_when_it_wants_to_be():
    work: Work[str] = Work()
    looks = 0

    async def look(key):
        nonlocal looks
        looks += 1
        return 0.05 if looks < 4 else None

    async def four() -> bool:
        return looks == 4

    work.add("a")
    async with running(work, look):
        await eventually(four, 10, "it was not looked at again")
        await asyncio.sleep(0.2)
    assert looks == 4


async def test_a_sooner_time_counts_and_a_later_one_does_not():
    work: Work[str] = Work()
    seen: list[str] = []

    async def look(key):
        seen.append(key)

    work.add("late", 3600)
    work.add("brought forward", 3600)
    work.add("brought forward", 0)
    work.add("brought forward", 1800)

    async def one() -> bool:
        return seen == ["brought forward"]

    async with running(work, look):
        await eventually(one, 10, "it was not brought forward")
        await asyncio.sleep(0.1)
    assert seen == ["brought forward"]
