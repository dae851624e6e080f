"""The whole way, enqueue to result, with queues on several nodes where there are several, and over TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace import Headrace, QueueConfig, TaskContext
from headrace.worker.worker import Worker
from tests.support.redis_server import RedisServer
from tests.support.tls import make_tls_files
from tests.support.topology import Installation

PATIENCE_S = 90


async def test_tasks_flow_and_wake_idle_workers(any_redis: Installation, tenant: str) -> None:
    await tasks_flow(any_redis.url, tenant)


async def test_tasks_flow_over_tls_with_an_acl_user(tenant: str, tmp_path: Path) -> None:
    tls = make_tls_files(tmp_path)
    rules = [("user", "app on >secret ~hr:* &hr:* +@all"), ("user", "default off")]
    with RedisServer(rules, tls=tls, username="app", password="secret") as server:
        await tasks_flow(server.url, tenant)


async def tasks_flow(url: str, tenant: str) -> None:
    # Four queues: in a cluster they live on different nodes.
    queues = [f"jobs-{number}" for number in range(4)]
    app = Headrace(url, tenant=tenant, queues=[QueueConfig(name) for name in queues])

    @app.task(queue="jobs-0")
    async def add(ctx: TaskContext, left: int, right: int) -> int:
        return left + right

    began = asyncio.Event()

    @app.task(queue="jobs-1")
    async def endless() -> None:
        began.set()
        await asyncio.sleep(600)

    worker = Worker(app, queues=queues, grace_s=0)
    running = asyncio.create_task(worker.run())
    calls = [add.options(queue=queues[n % 4]).call(n, n) for n in range(100)]
    tasks = await app.enqueue_many(calls)
    assert await asyncio.gather(*(task.result(PATIENCE_S) for task in tasks)) == [2 * n for n in range(100)]
    for name in queues:  # idle now: each of these has to wake it
        assert await (await add.options(queue=name).enqueue(1, 2)).result(PATIENCE_S) == 3
    task = await endless.enqueue()
    await began.wait()
    assert await task.cancel() == "cancelling"
    assert (await app.backend().finished("jobs-1", task.id, PATIENCE_S)).state == "cancelled"
    assert await app.queue_names() == queues
    worker.stop()
    await running
    await app.aclose()
