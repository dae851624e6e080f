"""Every mistake gets one clear error that names the field, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace import Headrace, HeadraceError, InvalidInput, QueueConfig, UnknownLevel, UnknownQueue
from tests.support.redis_server import RedisServer
from tests.support.snapshot import snapshot
from tests.support.topology import Installation

NAME_RULE = "use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"


class Target:
    """A task to make mistakes with, and all keys of its tenant to see that nothing changed."""

    def __init__(self, server: Installation, tenant: str) -> None:
        self._client = server.client()
        self.tenant = tenant
        self.app = Headrace(server.url, tenant=tenant, queues=[QueueConfig("jobs", max_delay_s=1000)])

        @self.app.task(queue="jobs")
        async def take(value: Any = None, *, extra: Any = None) -> None: ...

        self.take = take

    def dump(self) -> dict[bytes, Any]:
        return snapshot(self._client, f"hr:{{{self.tenant}*")


@pytest.fixture
async def target(any_redis: Installation, tenant: str) -> AsyncIterator[Target]:
    made = Target(any_redis, tenant)
    await made.take.enqueue(1)  # the queue exists and is not empty
    yield made
    await made.app.aclose()
    made._client.close()


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


LOOP: list[Any] = []
LOOP.append(LOOP)

PAYLOADS: list[tuple[str, Any, str]] = [
    ("an object", object(), "payload.args[0]: a value of type object cannot be written as JSON"),
    (
        "inside",
        {"a": [1, {2: complex(1)}]},
        "payload.args[0].a[1].2: a value of type complex cannot be written as JSON",
    ),
    ("a function", len, "payload.args[0]: a value of type builtin_function_or_method cannot be written as JSON"),
    ("NaN", math.nan, "payload.args[0]: nan is not a JSON number"),
    ("infinity", {"x": [-math.inf]}, "payload.args[0].x[0]: -inf is not a JSON number"),
    ("surrogate", "\ud800", "payload.args[0]: a string with lone surrogates cannot be written as JSON"),
    ("odd key", {(1, 2): 3}, "payload.args[0]: a key of type tuple cannot be written as JSON"),
    ("1,000 deep", nested(1000), "is nested more than 100 levels deep"),
    ("100,000 deep", nested(100_000), "is nested more than 100 levels deep"),
    ("101 deep with the message around it", nested(101), "is nested more than 100 levels deep"),
    ("a loop", LOOP, "is nested more than 100 levels deep"),
    ("1 MiB and a bit", "x" * (1 << 20), "payload: is 1048"),
    ("1 MiB of wide characters", "é" * (1 << 19), "payload: is 1048"),
]


@pytest.mark.parametrize(("value", "problem"), [case[1:] for case in PAYLOADS], ids=[case[0] for case in PAYLOADS])
async def test_a_payload_that_cannot_travel_is_refused(target: Target, value: Any, problem: str) -> None:
    before = target.dump()
    with pytest.raises(InvalidInput) as caught:
        await target.take.enqueue(value)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("payload")
    with pytest.raises(InvalidInput):
        await target.app.enqueue_many([target.take.call(1), target.take.call(value)])
    assert target.dump() == before


async def test_the_size_limit_is_exact_and_configurable(any_redis: Installation, tenant: str) -> None:
    app = Headrace(any_redis.url, tenant=tenant, queues=[QueueConfig("small", max_payload_bytes=200)])
    async with app:
        put = app.remote("t", queue="small")
        with pytest.raises(InvalidInput) as caught:
            await put.enqueue("x" * 300)
        assert str(caught.value).startswith("payload: is ")
        assert str(caught.value).endswith(" bytes as JSON; at most 200 are allowed")
        size = int(str(caught.value).split()[2])
        await put.enqueue("x" * (300 - (size - 200)))
        with pytest.raises(InvalidInput, match=r"payload: is 201 bytes as JSON; at most 200 are allowed"):
            await put.enqueue("x" * (301 - (size - 200)))


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"delay_s": -1}, "delay_s: is -1; a delay cannot be negative"),
    ({"delay_s": math.nan}, "delay_s: must be a number of seconds, not nan"),
    ({"delay_s": math.inf}, "delay_s: must be a number of seconds, not inf"),
    ({"delay_s": "60"}, "delay_s: must be a number of seconds, not '60'"),
    ({"delay_s": True}, "delay_s: must be a number of seconds, not True"),
    ({"delay_s": 1e12}, "delay_s: is 1e+12; at most 3.1536e+08 seconds (ten years) are allowed"),
    ({"delay_s": 1001}, "delay_s: is more than the queue's max_delay_s of 1000 seconds"),
    ({"timeout_s": 0}, "timeout_s: must be a number of seconds above 0, not 0"),
    ({"timeout_s": math.inf}, "timeout_s: must be a number of seconds above 0, not inf"),
    ({"max_retries": -1}, "max_retries: must be a whole number from 0 to 1000, not -1"),
    ({"max_retries": 1.5}, "max_retries: must be a whole number from 0 to 1000, not 1.5"),
    ({"priority": "urgent"}, "priority: queue 'jobs' has no level 'urgent'; it has high, medium, low"),
    ({"priority": "High"}, f"priority: 'High' is not allowed; {NAME_RULE}"),
    ({"queue": "nope"}, "queue: 'nope' is not defined for tenant"),
    ({"queue": "a/b"}, f"queue: 'a/b' is not allowed; {NAME_RULE}"),
    ({"queue": "x}:{y"}, f"queue: 'x}}:{{y' is not allowed; {NAME_RULE}"),
    ({"queue": ""}, f"queue: '' is not allowed; {NAME_RULE}"),
    ({"queue": "-a"}, f"queue: '-a' is not allowed; {NAME_RULE}"),
    ({"queue": "a\n"}, f"queue: 'a\\n' is not allowed; {NAME_RULE}"),
    ({"queue": "é"}, f"queue: 'é' is not allowed; {NAME_RULE}"),
    ({"queue": "a" * 64}, "queue: is 64 characters long; at most 63 are allowed"),
    ({"queue": 7}, "queue: must be a string, not int"),
    ({"idempotency_key": ""}, "idempotency_key: must be 1 to 255 printable characters"),
    ({"idempotency_key": "k" * 256}, "idempotency_key: must be 1 to 255 printable characters"),
    ({"idempotency_key": "a\x00b"}, "idempotency_key: must be 1 to 255 printable characters"),
    ({"required_capabilities": ["GPU"]}, f"required_capabilities: 'GPU' is not allowed; {NAME_RULE}"),
    ({"required_capabilities": ["a,b"]}, f"required_capabilities: 'a,b' is not allowed; {NAME_RULE}"),
    ({"required_capabilities": "gpu"}, "required_capabilities: must be a collection of names, such as ['gpu']"),
    ({"traceparent": "00-xyz"}, "traceparent: '00-xyz' is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)"),
]


@pytest.mark.parametrize(("options", "problem"), OPTIONS, ids=[str(case[0])[:40] for case in OPTIONS])
async def test_an_option_that_makes_no_sense_is_refused(target: Target, options: dict[str, Any], problem: str) -> None:
    before = target.dump()
    with pytest.raises(InvalidInput) as caught:
        await target.take.options(**options).enqueue(1)
    assert str(caught.value).startswith(problem)
    assert target.dump() == before


async def test_unknown_queue_and_level_have_their_own_types_and_say_what_to_do(target: Target) -> None:
    with pytest.raises(UnknownQueue) as unknown_queue:
        await target.app.remote("t", queue="nope").enqueue()
    assert str(unknown_queue.value) == (
        f"queue: 'nope' is not defined for tenant {target.tenant!r}; "
        "declare it with Headrace(..., queues=[QueueConfig('nope')])"
    )
    with pytest.raises(UnknownLevel) as unknown_level:
        await target.app.enqueue_many([target.take.call(1), target.take.options(priority="urgent").call(2)])
    assert str(unknown_level.value) == "tasks[1].priority: queue 'jobs' has no level 'urgent'; it has high, medium, low"


async def test_one_bad_task_among_thousands_keeps_all_of_them_out(target: Target) -> None:
    before = target.dump()
    calls = [target.take.call(number) for number in range(2500)]
    with pytest.raises(UnknownLevel, match=r"tasks\[2500\]\.priority: queue 'jobs' has no level 'urgent'"):
        await target.app.enqueue_many([*calls, target.take.options(priority="urgent").call(0)])
    with pytest.raises(InvalidInput, match=r"tasks\[2500\]\.delay_s: is more than the queue's max_delay_s"):
        await target.app.enqueue_many([*calls, target.take.options(delay_s=2000).call(0)])
    assert target.dump() == before


async def test_arguments_that_no_call_could_have_are_refused(target: Target) -> None:
    before = target.dump()
    for args, kwargs, problem in (
        ((1, 2), {}, "arguments: too many positional arguments"),
        ((), {"colour": 1}, "arguments: got an unexpected keyword argument 'colour'"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await target.take.enqueue(*args, **kwargs)
        assert str(caught.value) == problem
    assert target.dump() == before


def test_tenants_are_checked_before_anything_is_opened() -> None:
    for tenant in ("a/b", "a}", "", "A", "x" * 64, "../etc", "a:b"):
        with pytest.raises(InvalidInput, match="^tenant: "):
            Headrace("redis://localhost:1/0", tenant=tenant)


async def test_a_task_cannot_be_registered_twice_or_in_the_wrong_place(target: Target) -> None:
    with pytest.raises(InvalidInput, match="name: a task 'take' is already registered"):

        @target.app.task(queue="jobs")
        async def take() -> None: ...

    with pytest.raises(TypeError, match="run_in='loop' is for async functions"):

        @target.app.task(queue="jobs", run_in="loop")
        def plain() -> None: ...

    with pytest.raises(TypeError, match="run_in='process' is for plain functions"):

        @target.app.task(queue="jobs", run_in="process")
        async def coroutine() -> None: ...


async def test_too_many_capability_sets_are_refused(target: Target) -> None:
    before_limit = [target.take.options(required_capabilities=[f"cap-{n}"]).call(n) for n in range(63)]
    await target.app.enqueue_many(before_limit)
    before = target.dump()
    with pytest.raises(InvalidInput) as caught:
        await target.take.options(required_capabilities=["one-more"]).enqueue(1)
    assert str(caught.value) == (
        "required_capabilities: would be one more than the 64 different capability sets a queue can hold"
    )
    assert target.dump() == before
    many = [target.take.options(required_capabilities=[f"new-{n}"]).call(n) for n in range(1500)]
    with pytest.raises(InvalidInput, match=r"tasks\[0\]\.required_capabilities: would be one more than the 64"):
        await target.app.enqueue_many(many)
    assert target.dump() == before


async def test_a_redis_that_may_evict_tasks_is_refused(tenant: str) -> None:
    with RedisServer([("maxmemory-policy", "allkeys-lru")]) as server:
        async with Headrace(server.url, tenant=tenant, queues=[QueueConfig("jobs")]) as app:
            with pytest.raises(
                HeadraceError, match="maxmemory-policy is allkeys-lru.*set maxmemory-policy to noeviction"
            ):
                await app.remote("t", queue="jobs").enqueue()
        with server.client() as client:
            assert client.dbsize() == 0
