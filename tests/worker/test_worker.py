"""What a worker makes of a task: outcomes, types, contexts, timeouts, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import enum
import gc
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest

from headrace import (
    Fail,
    Headrace,
    Retry,
    Snooze,
    TaskCancelled,
    TaskContext,
    TaskFailed,
    TaskState,
    WorkerState,
    current_context,
)
from headrace.model.trace import current_traceparent, trace_id_of
from headrace.queue.queue import Queue
from headrace.worker.worker import Worker
from tests.support.redis_server import free_port
from tests.support.topology import Installation
from tests.support.waiting import eventually
from tests.worker import process_tasks

PATIENCE_S = 60
Running = Callable[..., contextlib.AbstractAsyncContextManager[Worker]]


async def test_async_and_sync_handlers_return_results(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def double(number: int) -> int:
        return number * 2

    @app.task(queue="jobs")
    def thread_name(prefix: str) -> str:
        return prefix + threading.current_thread().name

    async with running():
        assert await (await double.enqueue(21)).result(PATIENCE_S) == 42
        assert (await (await thread_name.enqueue("in ")).result(PATIENCE_S)).startswith("in headrace-handler")


async def test_a_failing_handler_is_retried_then_dead_lettered_with_its_history(
    app: Headrace, running: Running
) -> None:
    @app.task(queue="jobs")
    async def fails() -> None:
        raise ConnectionError("no route")

    async with running():
        task = await fails.enqueue()
        with pytest.raises(TaskFailed, match="max_retries_exceeded.*ConnectionError: no route"):
            await task.result(PATIENCE_S)
        record = await task.record()
        assert record.state is TaskState.DEAD_LETTER
        assert [(a.number, a.reason, a.problem.type) for a in record.history] == [
            (1, "error", "ConnectionError"),
            (2, "error", "ConnectionError"),
            (3, "error", "ConnectionError"),
        ]
        assert "raise ConnectionError" in record.history[0].problem.traceback


async def test_errors_outside_retry_on_fail_for_good(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs", retry_on=(OSError,))
    def picky(kind: str) -> None:
        raise {"key": KeyError("k"), "os": OSError("o")}[kind]

    async with running():
        bad, retried = await app.enqueue_many([picky.call("key"), picky.call("os")])
        with pytest.raises(TaskFailed, match=r"failed \(failed\): KeyError"):
            await bad.result(PATIENCE_S)
        with pytest.raises(TaskFailed, match="max_retries_exceeded"):
            await retried.result(PATIENCE_S)


async def test_handlers_say_retry_fail_and_snooze(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def speak(ctx: TaskContext, word: str) -> int:
        if word == "fail":
            raise Fail("never")
        if word == "retry" and ctx.attempt < 3:
            raise Retry("again", after_s=0.01)
        if word == "snooze" and not (await app.handle("jobs", ctx.task_id).record()).progress:
            ctx.progress("snoozed once")
            await eventually(
                lambda: _has_progress(app, ctx.task_id), timeout_s=PATIENCE_S, message="no progress arrived"
            )
            raise Snooze(0.01)
        return ctx.attempt

    async with running():
        with pytest.raises(TaskFailed, match="Fail: never"):
            await (await speak.enqueue("fail")).result(PATIENCE_S)
        assert await (await speak.enqueue("retry")).result(PATIENCE_S) == 3
        snoozed = await speak.enqueue("snooze")
        assert await snoozed.result(PATIENCE_S) == 1, "a snooze spends no attempt"
        assert (await app.stats("jobs")).counters["snoozed"] == 1


async def _has_progress(app: Headrace, task_id: str) -> bool:
    return (await app.handle("jobs", task_id).record()).progress is not None


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Struct(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    amount: int


async def test_arguments_arrive_as_their_type_hints_say(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def typed(
        when: datetime.datetime,
        ident: uuid.UUID,
        colour: Colour,
        point: Point,
        struct: Struct,
        model: Model,
        *rest: int,
    ) -> list[str]:
        assert model.amount == 3
        return [type(value).__name__ for value in (when, ident, colour, point, struct, model, *rest)]

    now = datetime.datetime.now(datetime.UTC)
    async with running():
        task = await typed.enqueue(now, uuid.uuid4(), Colour.RED, Point(1, 2.5), Struct("n"), {"amount": 3}, 4)  # type: ignore[arg-type]
        assert await task.result(PATIENCE_S) == ["datetime", "UUID", "Colour", "Point", "Struct", "Model", "int"]


async def test_arguments_that_do_not_fit_fail_at_once_naming_the_argument(app: Headrace, running: Running) -> None:
    ran: list[Any] = []

    @app.task(queue="jobs")
    async def typed(number: int, point: Point) -> None:
        ran.append(number)

    async with running():
        task = await typed.enqueue(1, {"x": "no", "y": 1})  # type: ignore[arg-type]
        with pytest.raises(TaskFailed, match=r"InvalidArguments: point\.x: Expected `int`, got `str`"):
            await task.result(PATIENCE_S)
        assert ran == []


async def test_a_result_that_is_not_json_fails_and_says_so(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def odd(kind: str) -> Any:
        return {"object": object(), "nan": float("nan"), "large": "x" * (2 << 20)}[kind]

    async with running():
        for kind, problem in (
            ("object", "result: a value of type object cannot be written as JSON"),
            ("nan", "result: nan is not a JSON number"),
            ("large", "result: is 2097154 bytes as JSON; at most 1048576 are allowed"),
        ):
            with pytest.raises(TaskFailed, match=problem):
                await (await odd.enqueue(kind)).result(PATIENCE_S)


async def test_an_unknown_task_type_waits_for_a_worker_that_knows_it(app: Headrace, running: Running) -> None:
    task = await app.remote("from_the_future", queue="jobs").enqueue()
    async with running():
        with pytest.raises(TaskFailed, match="UnknownTaskType: no handler for 'from_the_future' here"):
            await task.result(PATIENCE_S)
    assert len((await task.record()).history) == 3
    await app.aclose()


async def test_a_timeout_ends_async_and_sync_handlers(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs", timeout_s=0.2, max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(600)

    release = threading.Event()

    @app.task(queue="jobs", timeout_s=0.2, max_retries=0)
    def slow_thread() -> None:
        release.wait(600)

    async with running(concurrency=1):
        for handler in (slow, slow_thread):
            with pytest.raises(TaskFailed, match="max_retries_exceeded.*ran past its timeout"):
                await (await handler.enqueue()).result(PATIENCE_S)
        release.set()


async def test_a_handlers_own_timeout_error_is_an_ordinary_error(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs", max_retries=0)
    async def upstream() -> None:
        raise TimeoutError("upstream")

    async with running():
        with pytest.raises(TaskFailed, match="TimeoutError: upstream"):
            await (await upstream.enqueue()).result(PATIENCE_S)


async def test_system_exit_in_a_handler_does_not_end_the_worker(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs", max_retries=0)
    async def quits() -> None:
        raise SystemExit(3)

    @app.task(queue="jobs", max_retries=0)
    def quits_in_a_thread() -> None:
        raise SystemExit(3)

    async with running():
        for handler in (quits, quits_in_a_thread):
            with pytest.raises(TaskFailed, match="SystemExit: 3"):
                await (await handler.enqueue()).result(PATIENCE_S)


async def test_cancelling_a_running_task_stops_its_handler(app: Headrace, running: Running) -> None:
    began = asyncio.Event()

    @app.task(queue="jobs")
    async def wait() -> None:
        began.set()
        await asyncio.sleep(600)

    async with running():
        task = await wait.enqueue()
        await began.wait()
        assert await task.cancel() == "cancelling"
        with pytest.raises(TaskCancelled):
            await task.result(PATIENCE_S)


async def test_a_cancellation_whose_message_is_lost_arrives_with_the_heartbeat(
    app: Headrace, running: Running, any_redis: Installation, tenant: str
) -> None:
    seen = threading.Event()

    @app.task(queue="jobs")
    def look(ctx: TaskContext) -> str:
        while not ctx.cancelled:
            time.sleep(0.01)
        seen.set()
        return "saw it"

    async with running():
        task = await look.enqueue()
        await eventually(lambda: _is(task, TaskState.EXECUTING), timeout_s=PATIENCE_S)
        # The mark without its message: what a lost pub/sub message looks like.
        any_redis.client().hset(f"hr:{{{tenant}/jobs}}:task:{task.id}", "cancel", "1")
        with pytest.raises(TaskCancelled):
            await task.result(PATIENCE_S)
        assert await asyncio.to_thread(seen.wait, PATIENCE_S)


async def _is(task: Any, state: TaskState) -> bool:
    return await task.state() is state


async def test_the_context_tells_about_the_task(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs", priority="low", timeout_s=50)
    async def tell(ctx: TaskContext) -> list[Any]:
        assert current_context() is ctx
        ctx.logger.info("hello")
        return [ctx.task_id, ctx.type, ctx.queue, ctx.tenant, ctx.attempt, ctx.level, 0 < ctx.time_left_s <= 50]

    async with running():
        task = await tell.enqueue()
        assert await task.result(PATIENCE_S) == [task.id, "tell", "jobs", app.tenant, 1, "low", True]
    with pytest.raises(LookupError):
        current_context()


async def test_the_trace_goes_from_enqueue_to_handler_and_on(app: Headrace, running: Running) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @app.task(queue="jobs")
    async def inner() -> str:
        return current_traceparent()

    @app.task(queue="jobs")
    def outer() -> list[str]:
        return [current_traceparent(), inner.blocking.enqueue().result(PATIENCE_S)]

    async with running(concurrency=2):
        outside, inside = await (await outer.options(traceparent=given).enqueue()).result(PATIENCE_S)
    assert outside == given
    assert trace_id_of(inside) == trace_id_of(given)
    assert inside != given, "a span of its own"
    await asyncio.to_thread(app.blocking.close)


async def test_progress_is_visible_while_the_task_runs(app: Headrace, running: Running) -> None:
    go_on = asyncio.Event()

    @app.task(queue="jobs")
    async def report(ctx: TaskContext) -> None:
        ctx.progress({"done": 1, "of": 2})
        await go_on.wait()

    async with running():
        task = await report.enqueue()
        await eventually(lambda: _has_progress(app, task.id), timeout_s=PATIENCE_S)
        assert (await task.record()).progress == {"done": 1, "of": 2}
        go_on.set()
        await task.result(PATIENCE_S)


async def test_process_handlers(running: Running, app: Headrace) -> None:
    process_tasks.register(app)
    async with running(concurrency=2):

        async def enqueue(name: str, *args: Any) -> Any:
            options = {"timeout_s": 1.0} if name == "endless" else {}
            return await app.remote(name, queue="jobs", max_retries=0, **options).enqueue(*args)

        first = await (await enqueue("square", 7)).result(PATIENCE_S)
        second = await (await enqueue("square", 8)).result(PATIENCE_S)
        assert (first["result"], second["result"]) == (49, 64)
        assert first["pid"] == second["pid"], "the process is used again"
        for name, problem in (
            ("crash", "HandlerCrashed: the handler's process ended with exit code 3"),
            ("raise_value_error", r"failed \(failed\): ValueError: bad value"),
            ("say_fail", "Fail: no use"),
            ("endless", "ran past its timeout"),
        ):
            with pytest.raises(TaskFailed, match=problem):
                await (await enqueue(name)).result(PATIENCE_S)
        task = await enqueue("report_and_wait")
        await eventually(lambda: _has_progress(app, task.id), timeout_s=PATIENCE_S)
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result(PATIENCE_S)


async def test_one_worker_serves_several_queues_within_its_capacity(app: Headrace, running: Running) -> None:
    at_once = most = 0

    async def step() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.005)
        at_once -= 1

    @app.task(queue="jobs")
    async def here() -> None:
        await step()

    @app.task(queue="other")
    async def there() -> None:
        await step()

    async with running(queues=None, concurrency=3):
        calls = [task.call() for _ in range(40) for task in (here, there)]
        tasks = await app.enqueue_many(calls)
        await asyncio.gather(*(task.result(PATIENCE_S) for task in tasks))
    assert most == 3


async def test_a_busy_queue_does_not_keep_another_one_out(app: Headrace, running: Running) -> None:
    order: list[str] = []

    @app.task(queue="jobs")
    async def here() -> None:
        order.append("jobs")

    @app.task(queue="other")
    async def there() -> None:
        order.append("other")

    await app.enqueue_many([here.call() for _ in range(100)])
    tasks = await app.enqueue_many([there.call() for _ in range(20)])
    async with running(queues=None, concurrency=1):
        await asyncio.gather(*(task.result(PATIENCE_S) for task in tasks))
        # Up to the last of the others: how long the news of its result takes is not what this is about.
        until_the_last = order[: len(order) - order[::-1].index("other")]
        assert until_the_last.count("jobs") <= 40, "they take turns"


async def test_capabilities_decide_who_runs_a_task(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs", required_capabilities=["gpu"])
    async def train(ctx: TaskContext) -> str:
        return "trained"

    @app.task(queue="jobs")
    async def plain() -> str:
        return "done"

    async with running():
        special = await train.enqueue()
        assert await (await plain.enqueue()).result(PATIENCE_S) == "done"
        assert await special.state() is TaskState.QUEUED
        async with running(capabilities=["gpu", "big-memory"]):
            assert await special.result(PATIENCE_S) == "trained"


async def test_a_delayed_task_runs_when_it_is_due(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def plain() -> float:
        return time.time()

    async with running():
        task = await plain.options(delay_s=0.3).enqueue()
        ran_at_s = await task.result(PATIENCE_S)
        assert ran_at_s >= (await task.record()).created_at_s + 0.3


async def test_pause_drain_and_undrain_reach_an_idle_worker(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def plain() -> str:
        return "done"

    async with running() as worker:
        name = worker.identity.worker

        async def state() -> WorkerState:
            return next(record.state for record in await app.workers("jobs") if record.worker == name)

        async def parked() -> bool:
            return any(record.parked for record in await app.workers("jobs"))

        async def told() -> bool:
            return not worker.health.ready

        await app.pause("jobs")
        paused = await plain.enqueue()
        await app.resume("jobs")
        assert await paused.result(PATIENCE_S) == "done"

        assert await app.drain("jobs", [name]) == ["draining"]
        await eventually(parked, timeout_s=PATIENCE_S)
        # Redis knows before the answer has reached the worker itself.
        await eventually(told, timeout_s=PATIENCE_S)
        waiting = await plain.enqueue()
        assert await state() is WorkerState.DRAINING
        assert await app.undrain("jobs", [name]) == ["active"]
        assert await waiting.result(PATIENCE_S) == "done"
        assert worker.health.ready


async def test_health_answers_over_http_even_while_a_handler_blocks_the_loop(app: Headrace, running: Running) -> None:
    port = free_port()
    answers: list[int] = []

    def status(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    @app.task(queue="jobs")
    async def block() -> None:
        answers.append(status("/livez"))  # the loop does nothing else in the meantime

    async with running(health_address=("127.0.0.1", port)) as worker:
        await (await block.enqueue()).result(PATIENCE_S)
        assert answers == [200]
        assert await asyncio.to_thread(status, "/readyz") == 200
        assert await asyncio.to_thread(status, "/nothing") == 404
        worker.health._stalled_after_s = -1.0
        assert await asyncio.to_thread(status, "/livez") == 503


async def test_a_worker_whose_record_was_purged_registers_again(
    app: Headrace, running: Running, any_redis: Installation, tenant: str
) -> None:
    @app.task(queue="jobs")
    async def plain() -> str:
        return "done"

    async with running() as worker:
        assert await (await plain.enqueue()).result(PATIENCE_S) == "done"
        any_redis.client().delete(f"hr:{{{tenant}/jobs}}:worker:{worker.identity.worker}")
        assert await (await plain.enqueue()).result(PATIENCE_S) == "done"


async def test_a_worker_starts_though_a_failover_forgets_its_queue(app: Headrace, any_redis: Installation) -> None:
    class Unlucky(Worker):
        forgotten = 0

        async def _register(self, queue: Queue) -> None:
            if self.forgotten < 2:
                self.forgotten += 1
                any_redis.client().delete(queue.keys.config)
            await super()._register(queue)

    @app.task(queue="jobs")
    async def double(number: int) -> int:
        return 2 * number

    worker = Unlucky(app, queues=["jobs"], grace_s=0.0)
    loop = asyncio.create_task(worker.run())

    async def is_ready() -> bool:
        return worker.health.ready or loop.done()

    try:
        await eventually(is_ready, timeout_s=PATIENCE_S)
        assert worker.forgotten == 2
        assert await (await double.enqueue(4)).result(PATIENCE_S) == 8
    finally:
        worker.stop()
        await loop


async def test_tasks_that_arrive_after_the_drain_began_are_handed_back_at_once(
    app: Headrace, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    @app.task(queue="jobs")
    async def plain() -> None:
        ran.append(1)

    answered, may_go_on = asyncio.Event(), asyncio.Event()
    real_claim = Queue.claim

    async def slow_claim(self: Queue, *args: Any, **kwargs: Any) -> Any:
        reply = await real_claim(self, *args, **kwargs)
        if reply.tasks:  # leased, but the answer takes its time
            answered.set()
            await may_go_on.wait()
        return reply

    task = await plain.enqueue()
    monkeypatch.setattr(Queue, "claim", slow_claim)
    async with running(grace_s=60) as worker:
        await answered.wait()
        worker.stop()

        async def is_draining() -> bool:
            return worker.health.draining

        await eventually(is_draining, timeout_s=PATIENCE_S)
        may_go_on.set()
    record = await task.record()
    assert (record.state, record.retry_count, record.history, ran) == (TaskState.QUEUED, 0, (), [])
    await app.aclose()


async def test_a_task_leaves_nothing_to_the_garbage_collector(app: Headrace, running: Running) -> None:
    @app.task(queue="jobs")
    async def report(ctx: TaskContext) -> None:
        ctx.progress({"done": 1})

    async def run(count: int) -> None:
        for task in await app.enqueue_many([report.call() for _ in range(count)]):
            await task.result(60.0)

    async with running(concurrency=5):
        await run(20)
        gc.collect()
        gc.disable()
        try:
            await run(100)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [type(thing).__name__ for thing in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not {"RunningTask", "TaskContext"} & set(left)
