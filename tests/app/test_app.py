"""The app: enqueueing, handles, idempotency, tenants, the blocking twin."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace import (
    Headrace,
    InvalidConfig,
    Level,
    QueueConfig,
    ResultTimeout,
    TaskCancelled,
    TaskNotFound,
    TaskState,
)
from headrace.worker.worker import Worker
from tests.support.redis_server import RedisServer
from tests.support.topology import Installation

PATIENCE_S = 60


def new_app(server: Installation, tenant: str) -> Headrace:
    return Headrace(server.url, tenant=tenant, queues=[QueueConfig("jobs")])


@pytest.fixture
async def app(any_redis: Installation, tenant: str) -> AsyncIterator[Headrace]:
    async with new_app(any_redis, tenant) as made:
        yield made


async def test_a_decorated_function_stays_a_function(app: Headrace) -> None:
    @app.task(queue="jobs")
    async def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert await add(1) == 3
    assert (add.__name__, add.__doc__, add.type) == ("add", "Adds.", "add")


async def test_options_apply_to_one_call(app: Headrace) -> None:
    @app.task(queue="jobs", priority="high", max_retries=1, timeout_s=9)
    async def act() -> None: ...

    plain = await (await act.enqueue()).record()
    other = await (await act.options(priority="low", delay_s=60, max_retries=7, timeout_s=5).enqueue()).record()
    assert (plain.priority, plain.max_retries, plain.timeout_s, plain.state) == ("high", 1, 9.0, TaskState.QUEUED)
    assert (other.priority, other.max_retries, other.timeout_s, other.state) == ("low", 7, 5.0, TaskState.SCHEDULED)
    with pytest.raises(TypeError, match="unknown option 'prio'; the options are queue, priority"):
        act.options(prio="low")  # type: ignore[call-arg]


async def test_level_defaults_apply_when_the_task_says_nothing(app: Headrace) -> None:
    task = app.remote("t", queue="jobs")
    figures = {}
    for level in ("high", "medium", "low"):
        record = await (await task.options(priority=level).enqueue()).record()
        figures[level] = (record.max_retries, record.timeout_s)
    assert figures == {"high": (5, 300.0), "medium": (3, 600.0), "low": (2, 900.0)}
    assert (await (await task.enqueue()).record()).priority == "medium", "the middle level is the default"


async def test_thousands_of_tasks_in_one_call_keep_their_order(app: Headrace) -> None:
    task = app.remote("t", queue="jobs")
    handles = await app.enqueue_many([task.call(number) for number in range(3000)])
    assert (await app.stats("jobs")).levels["medium"].depth == 3000
    assert [await handles[number].queue_position() for number in (0, 1, 999, 1000, 2999)] == [1, 2, 1000, 1001, 3000]


async def test_an_idempotency_key_leads_to_the_same_task(app: Headrace) -> None:
    task = app.remote("t", queue="jobs")
    first = await task.options(idempotency_key="k").enqueue(1)
    second = await task.options(idempotency_key="k").enqueue(2)
    other = await task.options(idempotency_key="k2").enqueue(3)
    assert (second.id, second.duplicate, first.duplicate) == (first.id, True, False)
    assert other.id != first.id
    twice = await app.enqueue_many([task.options(idempotency_key="k3").call(n) for n in range(2)])
    assert twice[0].id == twice[1].id
    assert (await app.stats("jobs")).waiting == 3


async def test_result_waits_and_says_when_it_gives_up(app: Headrace) -> None:
    @app.task(queue="jobs")
    async def answer() -> int:
        return 42

    task = await answer.enqueue()
    with pytest.raises(ResultTimeout, match="no result within 0.05 s; the task itself is unaffected"):
        await task.result(timeout_s=0.05)
    waiting = [asyncio.create_task(task.result(PATIENCE_S)) for _ in range(100)]
    worker = Worker(app, grace_s=0)
    running = asyncio.create_task(worker.run())
    assert await asyncio.gather(*waiting) == [42] * 100
    worker.stop()
    await running


async def test_a_queued_task_is_cancelled_at_once(app: Headrace) -> None:
    task = await app.remote("t", queue="jobs").enqueue()
    assert await task.cancel() == "cancelled"
    assert await task.cancel() == "cancelled"
    with pytest.raises(TaskCancelled):
        await task.result(1)
    assert await app.cancel("jobs", ["01890000-0000-7000-8000-000000000000"]) == ["not_found"]


async def test_a_task_is_found_without_its_queue(app: Headrace) -> None:
    task = await app.remote("t", queue="jobs").enqueue("x")
    record = await app.find(task.id)
    assert (record.queue, record.args, record.type) == ("jobs", ["x"], "t")
    for unknown in ("01890000-0000-7000-8000-000000000000", "no-uuid", "", "*", "a:b"):
        with pytest.raises(TaskNotFound):
            await app.find(unknown)


async def test_tenants_cannot_reach_each_other(any_redis: Installation, tenant: str) -> None:
    async with new_app(any_redis, f"{tenant}-a") as one, new_app(any_redis, f"{tenant}-b") as other:
        key = {"idempotency_key": "same"}
        mine = await one.remote("t", queue="jobs").options(**key).enqueue()  # type: ignore[arg-type]
        theirs = await other.remote("t", queue="jobs").options(**key).enqueue()  # type: ignore[arg-type]
        assert mine.id != theirs.id
        with pytest.raises(TaskNotFound):
            await other.find(mine.id)
        assert await other.cancel("jobs", [mine.id]) == ["not_found"]
        await other.pause("jobs")
        assert not (await one.stats("jobs")).paused
        assert (await one.stats("jobs")).waiting == 1


async def test_what_an_operator_published_is_not_overwritten(app: Headrace) -> None:
    queue = await app.redis_backend().queue("jobs")
    await queue.define(QueueConfig("jobs", levels=(Level("only"),)), owner="operator", generation=3)
    async with Headrace(app.settings, tenant=app.tenant, queues=[QueueConfig("jobs")]) as late:
        record = await (await late.remote("t", queue="jobs").enqueue()).record()
    assert record.priority == "only"


def test_queues_are_declared_once() -> None:
    with pytest.raises(InvalidConfig, match="queues: 'a' is declared twice"):
        Headrace("redis://localhost", queues=[QueueConfig("a"), QueueConfig("a")])


# ── blocking ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_blocking_api_has_the_same_verbs(any_redis: Installation, tenant: str) -> None:
    app = new_app(any_redis, tenant)

    @app.task(queue="jobs")
    def double(number: int) -> int:
        return number * 2

    async def work(stop: threading.Event) -> None:
        worker = Worker(app, grace_s=0)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(stop.wait)
        worker.stop()
        await running

    task = double.blocking.enqueue(4)
    assert task.state() is TaskState.QUEUED
    assert task.queue_position() == 1
    later = double.options(delay_s=100).blocking.enqueue(1)
    assert later.cancel() == "cancelled"
    stop = threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(work(stop),))
    thread.start()
    try:
        assert task.result(timeout_s=PATIENCE_S) == 8
        many = app.blocking.enqueue_many([double.call(n) for n in range(10)])
        assert [handle.result(PATIENCE_S) for handle in many] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
        assert app.blocking.stats("jobs").counters["completed"] == 11
        assert app.blocking.queue_names() == ["jobs"]
        assert len(app.blocking.workers("jobs")) == 1
        assert app.blocking.find(task.id).result == 8
        app.blocking.pause("jobs")
        app.blocking.resume("jobs")
        assert app.blocking.dead_letters("jobs") == []
        assert app.blocking.replay("jobs") == ([], [])
        assert app.blocking.drain("jobs", ["nobody"]) == ["not_found"]
        assert app.blocking.undrain("jobs", ["nobody"]) == ["not_found"]
        assert app.blocking.cancel("jobs", [task.id]) == ["completed"]
        assert app.blocking.handle("jobs", task.id).record().state is TaskState.COMPLETED
    finally:
        stop.set()
        thread.join()
        app.blocking.close()


def test_every_verb_of_the_app_has_a_blocking_twin() -> None:
    from headrace.app.blocking import BlockingHandle, BlockingHeadrace
    from headrace.app.handle import TaskHandle

    def verbs(of: Any) -> set[str]:
        return {name for name, value in vars(of).items() if asyncio.iscoroutinefunction(value) and name[0] != "_"}

    assert verbs(Headrace) - {"aclose"} <= set(vars(BlockingHeadrace))
    assert verbs(TaskHandle) <= set(vars(BlockingHandle))


def _enqueue_in_child(app: Headrace, results: Any) -> None:
    results.put(app.remote("t", queue="jobs").blocking.enqueue("from the child").id)


def test_blocking_calls_work_in_a_forked_child(any_redis: Installation, tenant: str) -> None:
    app = new_app(any_redis, tenant)
    app.remote("t", queue="jobs").blocking.enqueue("from the parent")
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    child = fork.Process(target=_enqueue_in_child, args=(app, results))
    child.start()
    task_id = results.get(timeout=PATIENCE_S)
    child.join()
    assert app.blocking.find(task_id).args == ["from the child"]
    app.blocking.close()


async def test_a_declared_queue_whose_definition_was_lost_is_published_anew(
    redis_server: RedisServer, tenant: str
) -> None:
    async with Headrace(redis_server.url, tenant=tenant, queues=[QueueConfig("jobs")]) as app:
        task = app.remote("t", queue="jobs")
        await task.enqueue()
        with redis_server.client() as client:  # what a failover to a replica that is behind may do
            client.delete(*client.keys(f"hr:{{{tenant}/jobs}}:*"))
        handle = await task.enqueue()
        assert await handle.state() is TaskState.QUEUED
