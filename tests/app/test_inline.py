"""The helpers for users' own tests."""

from __future__ import annotations

import pytest

from headrace import Fail, Headrace, QueueConfig, ResultTimeout, Retry, TaskContext, TaskFailed, TaskState, UnknownLevel
from headrace.testing import inline

app = Headrace("redis://nowhere.invalid:1/0", tenant="t", queues=[QueueConfig("jobs")])
attempts: list[int] = []


@app.task(queue="jobs")
async def greet(name: str, *, loud: bool = False) -> str:
    return name.upper() if loud else name


@app.task(queue="jobs", max_retries=2)
def flaky(ctx: TaskContext, succeed_at: int) -> int:
    attempts.append(ctx.attempt)
    if ctx.attempt < succeed_at:
        raise Retry("again")
    return ctx.attempt


@app.task(queue="jobs")
def hopeless() -> None:
    raise Fail("no")


async def test_tasks_run_where_they_are_enqueued() -> None:
    with inline(app) as box:
        task = await greet.enqueue("ada", loud=True)
        assert await task.result() == "ADA"
        assert await task.state() is TaskState.COMPLETED
    found = box.assert_enqueued(greet, "ada", loud=True)
    assert found.priority == "medium"
    box.assert_not_enqueued(flaky)


def test_it_works_for_blocking_code_too() -> None:
    with inline(app) as box:
        assert greet.blocking.enqueue("ada").result() == "ada"
    box.assert_enqueued(greet, "ada")


async def test_retries_are_made_at_once() -> None:
    attempts.clear()
    with inline(app):
        assert await (await flaky.enqueue(3)).result() == 3
        task = await flaky.enqueue(9)
        with pytest.raises(TaskFailed, match="max_retries_exceeded"):
            await task.result()
        with pytest.raises(TaskFailed, match="Fail: no"):
            await (await hopeless.enqueue()).result()
    assert attempts == [1, 2, 3, 1, 2, 3]


async def test_without_running_tasks_are_only_collected() -> None:
    with inline(app, run=False) as box:
        task = await greet.options(delay_s=60, idempotency_key="k").enqueue("ada")
        same = await greet.options(idempotency_key="k").enqueue("bob")
        assert same.id == task.id
        assert await task.state() is TaskState.SCHEDULED
        with pytest.raises(ResultTimeout):
            await task.result(1)
        assert await task.cancel() == "cancelled"
    assert [(found.args, found.delay_s) for found in box.enqueued] == [(["ada"], 60.0)]


async def test_failed_assertions_show_what_there_was() -> None:
    with inline(app) as box:
        await greet.enqueue("ada")
    with pytest.raises(AssertionError, match=r"no greet\('bob'\) was enqueued; tasks of this type:\n  greet\('ada'\)"):
        box.assert_enqueued(greet, "bob")
    with pytest.raises(AssertionError, match="1 tasks of type greet were enqueued"):
        box.assert_not_enqueued(greet)


async def test_mistakes_are_the_same_as_with_redis() -> None:
    with inline(app), pytest.raises(UnknownLevel, match="queue 'jobs' has no level 'urgent'"):
        await greet.options(priority="urgent").enqueue("ada")


async def test_types_are_checked_as_in_a_worker() -> None:
    with inline(app):
        task = await greet.enqueue(7)  # type: ignore[arg-type]
        with pytest.raises(TaskFailed, match="InvalidArguments: name: Expected `str`, got `int`"):
            await task.result()
