"""The spans of tasks, from real producers and workers to a real OTLP/HTTP receiver."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from headrace import Headrace
from headrace.model.ids import new_task_id
from headrace.model.task import NewTask
from headrace.model.trace import trace_id_of
from tests.support.collector import Collector, Span
from tests.support.redis_server import RedisServer, free_port
from tests.support.waiting import wait_until
from tests.support.worker_process import REPOSITORY, WorkerProcess

PATIENCE_S = 60
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
SHORTLY = {"OTEL_BSP_SCHEDULE_DELAY": "50"}

OWN_OPENTELEMETRY = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
from tests.worker import traced_app as tasks
"""
PRODUCER = (
    OWN_OPENTELEMETRY
    + """
with trace.get_tracer("shop").start_as_current_span("GET /checkout"):
    handle = {call}
print(handle.id, handle.result(timeout_s=60))
"""
)
STRANGER = (
    OWN_OPENTELEMETRY
    + """
try:
    tasks.context.options(queue="nowhere").blocking.enqueue()
except Exception as error:
    print(type(error).__name__)
"""
)
OWN_WORKER = (
    OWN_OPENTELEMETRY
    + """
import asyncio
from headrace.worker.worker import Worker

@tasks.app.task(queue="jobs")
async def with_a_span_of_its_own() -> str:
    with trace.get_tracer("shop").start_as_current_span("charge"):
        return (await tasks.context.enqueue()).id

async def main() -> None:
    worker = Worker(tasks.app)
    loop = asyncio.create_task(worker.run())
    task = await with_a_span_of_its_own.enqueue()
    child = tasks.app.handle("jobs", await task.result(60))
    await child.result(60)
    worker.stop()
    await loop
    print(task.id, child.id)

asyncio.run(main())
assert trace.get_tracer_provider() is provider
"""
)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def traced(server: RedisServer, tenant: str, endpoint: str, **variables: str) -> WorkerProcess:
    return WorkerProcess(
        server,
        tenant,
        app="tests.worker.traced_app:app",
        environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **SHORTLY, **variables},
    )


@pytest.fixture
def app(redis_server: RedisServer, tenant: str) -> Iterator[Headrace]:
    """A producer that does not trace."""
    from tests.worker import traced_app

    app = Headrace(redis_server.url, tenant=tenant, queues=traced_app.app.declared_queues)
    yield app
    app.blocking.close()


def produce(server: RedisServer, tenant: str, collector: Collector, call: str) -> tuple[str, str]:
    """Run ``call`` in a producer's process; returns the task's id and its result."""
    task_id, _, result = printed_by(PRODUCER.format(call=call), server, tenant, collector).partition(" ")
    return task_id, result


def printed_by(program: str, server: RedisServer, tenant: str, collector: Collector) -> str:
    """What a process of the user's prints, which sends its spans to the collector."""
    variables = {
        "HEADRACE_TEST_URL": server.url,
        "HEADRACE_TEST_TENANT": tenant,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "shop",
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def spans_of(collector: Collector, task_id: str, settled: int = 1) -> dict[str, list[Span]]:
    """The spans of a task by their name, when so many of its attempts have been settled."""

    def find() -> dict[str, list[Span]] | None:
        found: dict[str, list[Span]] = {}
        for span in collector.spans:
            if span.attributes.get("messaging.message.id") == task_id:
                found.setdefault(span.name, []).append(span)
        return found if len(found.get("settle jobs", ())) == settled else None

    found: dict[str, list[Span]] = wait_until(find, timeout_s=PATIENCE_S, message=f"no spans of {task_id} arrived")
    return found


def only(spans: Mapping[str, list[Span]], name: str) -> Span:
    (span,) = spans[name]
    return span


def test_a_task_is_one_trace_from_its_producer_to_its_settlement(
    redis_server: RedisServer, tenant: str, collector: Collector
) -> None:
    with traced(redis_server, tenant, collector.url):
        task_id, carried = produce(redis_server, tenant, collector, "tasks.context.blocking.enqueue()")
        spans = spans_of(collector, task_id)
    (request,) = [span for span in collector.spans if span.name == "GET /checkout"]
    enqueue, wait, run, settle = (only(spans, f"{name} jobs") for name in ("enqueue", "wait", "run", "settle"))
    assert {span.trace_id for span in (enqueue, wait, run, settle)} == {request.trace_id}
    assert [enqueue.parent_id, wait.parent_id, run.parent_id, settle.parent_id] == [
        request.span_id, enqueue.span_id, enqueue.span_id, run.span_id,
    ]  # fmt: skip
    assert [span.kind for span in (enqueue, wait, run, settle)] == ["PRODUCER", "INTERNAL", "CONSUMER", "CLIENT"]
    assert [span.service for span in (enqueue, wait, run, settle)] == ["shop", *["headrace-worker"] * 3]
    assert carried[:-2] == f"00-{run.trace_id}-{run.span_id}-", "what the handler hands on is its own span"
    assert int(carried[-2:], 16) & 1, "which is sampled"
    assert wait.start_ns <= wait.end_ns <= run.start_ns <= run.end_ns == settle.start_ns <= settle.end_ns
    assert not any(span.is_error for span in (enqueue, wait, run, settle))
    common = {"messaging.system": "headrace", "messaging.destination.name": "jobs", "headrace.task.type": "context"}
    for name, span in (("enqueue", enqueue), ("wait", wait), ("run", run), ("settle", settle)):
        assert common.items() <= span.attributes.items()
        assert span.attributes["messaging.operation.name"] == name
    assert [span.attributes.get("messaging.operation.type") for span in (enqueue, wait, run, settle)] == [
        "send", None, "process", "settle",
    ]  # fmt: skip
    assert (run.attributes["headrace.outcome"], run.attributes["headrace.task.attempt"]) == ("completed", 1)
    assert settle.attributes["headrace.settle.status"] == "settled"


@pytest.mark.parametrize("place", ["loop", "thread", "process"])
def test_what_a_handler_enqueues_belongs_to_its_run(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace, place: str
) -> None:
    with traced(redis_server, tenant, collector.url):
        parent = app.remote(f"context_from_{place}", queue="jobs").blocking.enqueue()
        child = parent.result(PATIENCE_S)
        run = only(spans_of(collector, parent.id), "run jobs")
        wait_until(lambda: "enqueue jobs" in spans_of(collector, child), timeout_s=PATIENCE_S)
        spans = spans_of(collector, child)
    enqueue = only(spans, "enqueue jobs")
    assert (enqueue.trace_id, enqueue.parent_id) == (run.trace_id, run.span_id)
    assert only(spans, "run jobs").parent_id == enqueue.span_id


def test_attempts_are_siblings_and_failures_say_why_but_not_with_what(
    redis_server: RedisServer, tenant: str, collector: Collector
) -> None:
    with traced(redis_server, tenant, collector.url):
        task_id, result = produce(redis_server, tenant, collector, "tasks.fail_first.blocking.enqueue('hunter2')")
        spans = spans_of(collector, task_id, settled=3)
    assert result == "3"
    enqueue, runs, settles = only(spans, "enqueue jobs"), spans["run jobs"], spans["settle jobs"]
    assert [run.parent_id for run in runs] == [enqueue.span_id] * 3
    assert [wait.parent_id for wait in spans["wait jobs"]] == [enqueue.span_id] * 3
    assert [settle.parent_id for settle in settles] == [run.span_id for run in runs]
    assert [run.attributes["headrace.task.attempt"] for run in runs] == [1, 2, 3]
    assert [run.attributes["headrace.outcome"] for run in runs] == ["retry", "retry", "completed"]
    assert [run.is_error for run in runs] == [True, True, False]
    assert runs[0].attributes["error.type"] == "ConnectionError"
    ((name, said),) = runs[0].events
    assert (name, said["exception.type"], said["exception.message"]) == (
        "exception", "ConnectionError", "no route to the shop",
    )  # fmt: skip
    assert "raise ConnectionError" in said["exception.stacktrace"]
    assert "hunter2" not in repr(collector.spans)


def test_a_task_whose_producer_does_not_trace_begins_a_trace_that_bears_its_id(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace
) -> None:
    with traced(redis_server, tenant, collector.url):
        task = app.remote("fail_first", queue="jobs").blocking.enqueue("x")
        task.result(PATIENCE_S)
        spans = spans_of(collector, task.id, settled=3)
    assert {span.trace_id for each in spans.values() for span in each} == {task.id.replace("-", "")}


def test_a_task_that_is_not_sampled_leaves_no_span_and_hands_that_on(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace
) -> None:
    with traced(redis_server, tenant, collector.url):
        context = app.remote("context", queue="jobs")
        quiet = context.options(traceparent=f"{GIVEN}-00").blocking.enqueue()
        assert quiet.result(PATIENCE_S) == f"{GIVEN}-00"
        parent = app.remote("context_from_loop", queue="jobs").options(traceparent=f"{GIVEN}-00").blocking.enqueue()
        carried = app.handle("jobs", parent.result(PATIENCE_S))
        assert app.blocking.handle("jobs", carried.id).result(PATIENCE_S).endswith("-00")
        loud = context.options(traceparent=f"{GIVEN}-01").blocking.enqueue()
        spans_of(collector, loud.id)
    assert {span.attributes["messaging.message.id"] for span in collector.spans} == {loud.id}


@pytest.mark.parametrize(("ratio", "traced_tasks"), [("0", 0), ("1", 20)])
def test_the_workers_sampler_decides_about_traces_that_begin_with_a_task(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace, ratio: str, traced_tasks: int
) -> None:
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio}
    with traced(redis_server, tenant, collector.url, **sampler) as worker:
        tasks = [app.remote("context", queue="jobs").blocking.enqueue() for _ in range(20)]
        for task in tasks:
            task.result(PATIENCE_S)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert len({span.trace_id for span in collector.spans}) == traced_tasks


def test_half_of_the_traces_is_about_half_and_the_same_for_each_attempt(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace
) -> None:
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    with traced(redis_server, tenant, collector.url, **sampler) as worker:
        tasks = [app.remote("fail_first", queue="jobs").blocking.enqueue("x") for _ in range(100)]
        for task in tasks:
            task.result(PATIENCE_S)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    runs: dict[str, int] = {}
    for span in collector.spans:
        if span.name == "run jobs":
            runs[span.trace_id] = runs.get(span.trace_id, 0) + 1
    assert 20 < len(runs) < 80  # 6 standard deviations
    assert set(runs.values()) == {3}


def test_what_is_left_is_sent_when_the_worker_ends(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace
) -> None:
    with traced(redis_server, tenant, collector.url, OTEL_BSP_SCHEDULE_DELAY="3600000") as worker:
        task = app.remote("context", queue="jobs").blocking.enqueue()
        task.result(PATIENCE_S)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert set(spans_of(collector, task.id)) == {"wait jobs", "run jobs", "settle jobs"}


def test_a_trace_context_that_is_none_is_as_good_as_no_trace_context(
    redis_server: RedisServer, tenant: str, collector: Collector, app: Headrace
) -> None:
    """Programs in other languages enqueue tasks, too."""
    rubbish = [f"{GIVEN}-0", "ff" + GIVEN[2:] + "-01", "00--01", "\N{SNOWMAN}" * 9]
    messages = [msgspec.json.encode({"type": "context", "traceparent": each}).decode() for each in rubbish]
    tasks = [NewTask(new_task_id(), message) for message in messages]

    async def enqueue() -> None:
        async with app:
            await app.redis_backend().enqueue("jobs", tasks)

    with traced(redis_server, tenant, collector.url):
        asyncio.run(enqueue())
        for task in tasks:
            spans = spans_of(collector, task.task_id)
            assert only(spans, "run jobs").trace_id == task.task_id.replace("-", "")
            assert only(spans, "run jobs").attributes["headrace.outcome"] == "completed"


def test_an_enqueue_that_fails_says_so(redis_server: RedisServer, tenant: str, collector: Collector) -> None:
    assert printed_by(STRANGER, redis_server, tenant, collector) == "UnknownQueue"
    (span,) = collector.spans
    assert (span.name, span.is_error, span.attributes["error.type"]) == ("enqueue nowhere", True, "UnknownQueue")


def test_a_worker_in_a_program_that_traces_uses_what_is_there(
    redis_server: RedisServer, tenant: str, collector: Collector
) -> None:
    task_id, child_id = printed_by(OWN_WORKER, redis_server, tenant, collector).split()
    spans, childs = spans_of(collector, task_id), spans_of(collector, child_id)
    (charge,) = [span for span in collector.spans if span.name == "charge"]
    assert charge.parent_id == only(spans, "run jobs").span_id
    assert only(childs, "enqueue jobs").parent_id == charge.span_id
    assert {span.service for span in collector.spans} == {"shop"}


# ── when nobody takes the spans ──────────────────────────────────────────────────────────────────────


def test_a_collector_that_is_down_stops_no_task_and_no_worker(
    redis_server: RedisServer, tenant: str, app: Headrace
) -> None:
    with traced(redis_server, tenant, f"http://127.0.0.1:{free_port()}") as worker:
        _all_run(app, 50)
        wait_until(lambda: "export" in worker.log(), timeout_s=PATIENCE_S, message="nothing was said of it")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert [line for line in worker.log().splitlines() if not line.startswith("{")] == []


def test_a_collector_that_hangs_stops_no_task_and_no_worker(
    redis_server: RedisServer, tenant: str, app: Headrace
) -> None:
    with Collector(hangs=True) as collector, traced(redis_server, tenant, collector.url) as worker:
        _all_run(app, 50)
        wait_until(lambda: collector.requests, timeout_s=PATIENCE_S)
        _all_run(app, 50)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0, "it ends while its request still waits for an answer"
        assert collector.spans == []


def _all_run(app: Headrace, count: int) -> None:
    tasks = [app.remote("context", queue="jobs").blocking.enqueue() for _ in range(count)]
    for task in tasks:
        assert trace_id_of(task.result(PATIENCE_S)) == task.id.replace("-", "")


# ── when nobody wants any ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
    ids=str,
)
def test_nothing_of_opentelemetry_is_loaded(
    redis_server: RedisServer, tenant: str, app: Headrace, variables: dict[str, str]
) -> None:
    with traced(redis_server, tenant, "http://127.0.0.1:4317", **variables) as worker:
        loaded = app.remote("modules", queue="jobs").blocking.enqueue().result(PATIENCE_S)
        assert [name for name in loaded if name.startswith("opentelemetry")] == []
        assert ("OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf" in worker.log()) == ("grpc" in variables.values())


def test_without_the_extra_it_is_said_once_what_to_install(
    redis_server: RedisServer, tenant: str, app: Headrace, tmp_path: Path
) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError('as if it were not installed')")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with traced(redis_server, tenant, "http://127.0.0.1:4318", PYTHONPATH=path) as worker:
        _all_run(app, 2)
        assert worker.log().count("pip install 'headrace[tracing]'") == 1
