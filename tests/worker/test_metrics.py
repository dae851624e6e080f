"""What a worker tells Prometheus about itself."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace import Fail, Headrace, InvalidConfig, Retry, Snooze, TaskContext, TaskFailed
from headrace.observability.histogram import Histogram
from headrace.worker.metrics import MOST_TASK_TYPES
from headrace.worker.pool import PoolMembership, membership
from headrace.worker.worker import Worker
from tests.support.redis_server import RedisServer, free_port
from tests.support.waiting import eventually, wait_until
from tests.support.worker_process import WorkerProcess

PATIENCE_S = 60
Running = Callable[..., contextlib.AbstractAsyncContextManager[Worker]]
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def ask(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def parsed(text: str) -> Samples:
    """Values by the sample's name and its labels."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def of(samples: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    return sum(value for key, value in samples.get(name, {}).items() if labels.items() <= dict(key).items())


async def figures(port: int) -> Samples:
    status, text = await asyncio.to_thread(ask, port)
    assert status == 200, text
    return parsed(text)


async def test_every_figure_of_the_contract_is_told_under_its_name(app: Headrace, running: Running) -> None:
    go_on = asyncio.Event()

    @app.task(queue="jobs", priority="low")
    async def at_gate() -> None:
        await go_on.wait()

    port = free_port()
    async with running(concurrency=3, health_address=("127.0.0.1", port)) as worker:
        task = await at_gate.enqueue()
        await eventually(lambda: _uses_slots(port, 1), timeout_s=PATIENCE_S)
        go_on.set()
        await task.result(PATIENCE_S)
        samples = await eventually(lambda: _has(port, "headrace_task_duration_seconds_count", 1), PATIENCE_S)
        assert worker.identity.capacity == 3

    own = {"namespace": app.tenant, "pool": ""}
    buckets = {name: {frozenset(dict(key)) for key in keys} for name, keys in samples.items() if "bucket" in name}
    assert buckets == {
        "headrace_queue_age_seconds_bucket": {frozenset({*own, "queue", "priority", "le"})},
        "headrace_task_duration_seconds_bucket": {frozenset({*own, "queue", "priority", "status", "le"})},
        "headrace_task_run_seconds_bucket": {frozenset({*own, "queue", "task", "le"})},
    }
    low = {**own, "queue": "jobs", "priority": "low"}
    assert of(samples, "headrace_queue_age_seconds_count", **low) == 1
    assert of(samples, "headrace_task_duration_seconds_count", **low, status="completed") == 1
    assert of(samples, "headrace_task_run_seconds_count", **own, queue="jobs", task="at_gate") == 1
    # What is end to end cannot be less than its parts.
    total_s, wait_s, run_s = (
        of(samples, f"headrace_{name}_seconds_sum") for name in ("task_duration", "queue_age", "task_run")
    )
    assert total_s >= wait_s + run_s > 0
    assert samples["headrace_worker_slots"] == {tuple(sorted(own.items())): 3}
    assert samples["headrace_worker_slots_used"] == {tuple(sorted(own.items())): 0}
    assert samples["headrace_worker_heartbeat_failures_total"] == {tuple(sorted(own.items())): 0}


async def _uses_slots(port: int, number: int) -> bool:
    try:
        return of(await figures(port), "headrace_worker_slots_used") == number
    except urllib.error.URLError:
        return False  # it has not opened its port yet


async def _has(port: int, name: str, value: float, **labels: str) -> Samples | None:
    samples = await figures(port)
    return samples if of(samples, name, **labels) == value else None


async def test_a_status_for_each_way_in_which_an_attempt_can_end(app: Headrace, running: Running) -> None:
    began = asyncio.Event()

    @app.task(queue="jobs")
    async def act(ctx: TaskContext, word: str) -> None:
        if word == "fail":
            raise Fail("never")
        if word == "retry" and ctx.attempt == 1:
            raise Retry("again", after_s=0.0)
        if word == "hang":
            began.set()
            await asyncio.sleep(600)

    port = free_port()
    async with running(health_address=("127.0.0.1", port)):
        hanging = await act.enqueue("hang")
        await began.wait()
        assert await hanging.cancel() == "cancelling"
        with pytest.raises(TaskFailed):
            await (await act.enqueue("fail")).result(PATIENCE_S)
        await (await act.enqueue("retry")).result(PATIENCE_S)
        samples = await eventually(lambda: _has(port, "headrace_task_duration_seconds_count", 4), PATIENCE_S)

    statuses = {dict(key)["status"]: value for key, value in samples["headrace_task_duration_seconds_count"].items()}
    assert statuses == {"completed": 1, "failed": 1, "retry": 1, "cancelled": 1}


async def test_a_snooze_ends_no_attempt_and_what_it_waits_for_is_no_waiting(app: Headrace, running: Running) -> None:
    snoozed: list[str] = []

    @app.task(queue="jobs")
    async def sleepy(ctx: TaskContext) -> None:
        if not snoozed:
            snoozed.append(ctx.task_id)
            raise Snooze(2.0)

    port = free_port()
    async with running(health_address=("127.0.0.1", port)):
        await (await sleepy.enqueue()).result(PATIENCE_S)
        samples = await eventually(lambda: _has(port, "headrace_task_duration_seconds_count", 1), PATIENCE_S)
    assert of(samples, "headrace_queue_age_seconds_count") == 2
    assert of(samples, "headrace_task_run_seconds_count") == 2
    assert of(samples, "headrace_task_duration_seconds_sum", status="completed") >= 2.0


async def test_types_without_a_handler_share_one_label(app: Headrace, running: Running) -> None:
    """Their names come from whoever enqueued them."""

    @app.task(queue="jobs")
    async def known() -> None: ...

    port = free_port()
    async with running(health_address=("127.0.0.1", port)):
        made_up = [app.remote(f"made.up.{number}", queue="jobs", max_retries=0) for number in range(3)]
        for stranger in made_up:
            with pytest.raises(TaskFailed, match="UnknownTaskType"):
                await (await stranger.enqueue()).result(PATIENCE_S)
        await (await known.enqueue()).result(PATIENCE_S)
        samples = await eventually(lambda: _has(port, "headrace_task_run_seconds_count", 4), PATIENCE_S)
    counts = {dict(key)["task"]: value for key, value in samples["headrace_task_run_seconds_count"].items()}
    assert counts == {"(unknown)": 3, "known": 1}


async def test_only_so_many_types_are_named(app: Headrace, running: Running) -> None:
    async def handler() -> None: ...

    types = [f"type_{number}" for number in range(MOST_TASK_TYPES + 5)]
    tasks = [app.task(queue="jobs", name=name)(handler) for name in types]
    port = free_port()
    async with running(health_address=("127.0.0.1", port)):
        for task in tasks:
            await (await task.enqueue()).result(PATIENCE_S)
        samples = await eventually(lambda: _has(port, "headrace_task_run_seconds_count", len(types)), PATIENCE_S)
    counts = {dict(key)["task"]: value for key, value in samples["headrace_task_run_seconds_count"].items()}
    assert counts == {**dict.fromkeys(types[:MOST_TASK_TYPES], 1), "(other)": 5}


# ── real processes ───────────────────────────────────────────────────────────────────────────────────


def test_a_pools_worker_bears_the_names_of_kubernetes(redis_server: RedisServer, tenant: str) -> None:
    port = free_port()
    pod = {"HEADRACE_NAMESPACE": "shop", "HEADRACE_POOL": "movers", "HEADRACE_QUEUE_NAMES": "jobs=orders"}
    arguments = ("--health-port", str(port), "--health-host", "127.0.0.1")
    with WorkerProcess(redis_server, tenant, *arguments, environment=pod) as worker:
        wait_until(lambda: _is_ready(port), timeout_s=PATIENCE_S)
        app = Headrace(redis_server.url, tenant=tenant)  # the worker has brought the queue along
        app.remote("nap", queue="jobs").blocking.enqueue(0.0).result(PATIENCE_S)
        samples = wait_until(lambda: _settled_one(port), timeout_s=PATIENCE_S)
        app.blocking.close()
        assert worker.running
    labels = {"namespace": "shop", "pool": "movers", "queue": "orders"}
    for name in ("queue_age", "task_duration", "task_run"):
        assert of(samples, f"headrace_{name}_seconds_count", **labels) == 1


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S) as response:
            return bool(response.status == 200)
    except urllib.error.URLError:
        return False


def _settled_one(port: int) -> Samples | None:
    status, text = ask(port)
    samples = parsed(text) if status == 200 else {}
    return samples if of(samples, "headrace_task_duration_seconds_count") == 1 else None


def test_heartbeats_that_do_not_reach_redis_are_counted(tenant: str) -> None:
    port = free_port()
    arguments = ("--health-port", str(port), "--health-host", "127.0.0.1")
    with RedisServer() as server, WorkerProcess(server, tenant, *arguments):
        wait_until(lambda: _heartbeat_failures(port) == 0, timeout_s=PATIENCE_S)
        server.stop()
        wait_until(lambda: _heartbeat_failures(port) > 0, timeout_s=PATIENCE_S)


def _heartbeat_failures(port: int) -> float:
    try:
        return of(parsed(ask(port)[1]), "headrace_worker_heartbeat_failures_total")
    except (ConnectionError, urllib.error.URLError):
        return -1  # it has not opened its port yet


def test_without_the_extra_it_is_said_what_to_install(redis_server: RedisServer, tenant: str, tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError('as if it were not installed')")
    port = free_port()
    arguments = ("--health-port", str(port), "--health-host", "127.0.0.1")
    with WorkerProcess(redis_server, tenant, *arguments, environment=_found_first(tmp_path)):
        status, text = wait_until(lambda: _answer(port), timeout_s=PATIENCE_S)
        assert status == 404
        assert "pip install 'headrace[metrics]'" in text
        assert _answer(port) == (404, text), "and the worker goes on"


def _found_first(folder: Path) -> Mapping[str, str]:
    import os

    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def _answer(port: int) -> tuple[int, str] | None:
    try:
        return ask(port)
    except (ConnectionError, urllib.error.URLError):
        return None


# ── the parts ────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_belongs_to_the_first_bound_that_is_not_below_it() -> None:
    counted = Histogram((1.0, 5.0))
    for value in (0.0, 1.0, 1.1, 5.0, 5.1, 100.0):
        counted.observe(("a",), value)
    ((labels, counts, total),) = counted.read()
    assert (labels, counts) == (("a",), [2, 2, 2])
    assert total == pytest.approx(112.2)


@given(st.lists(st.sampled_from((0.0, 0.5, 1.0, 3.0, 5.0, 7.0)) | st.floats(0, 10), max_size=60))
def test_a_batch_is_counted_like_each_of_its_values(values: list[float]) -> None:
    one_by_one, together = Histogram((1.0, 5.0)), Histogram((1.0, 5.0))
    for value in values:
        one_by_one.observe(("a",), value)
    together.observe_all(("a",), values.copy())
    assert [counts for _, counts, _ in together.read()] == [counts for _, counts, _ in one_by_one.read()]
    assert [total for _, _, total in together.read()] == pytest.approx([total for _, _, total in one_by_one.read()])


def test_a_worker_without_a_pool_has_its_tenant_for_a_namespace() -> None:
    assert membership({}, "acme") == PoolMembership("acme", "", {})
    assert membership({"HEADRACE_NAMESPACE": "shop", "HEADRACE_POOL": "p"}, "acme") == PoolMembership("shop", "p", {})


@pytest.mark.parametrize("text", ["jobs", "jobs=", "=orders", "jobs=orders,mails"])
def test_names_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="HEADRACE_QUEUE_NAMES.*queue=taskqueue"):
        membership({"HEADRACE_QUEUE_NAMES": text}, "acme")
