"""``python -m headrace_samples.check``, which is what ``helm test`` runs in a pod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Headrace, QueueConfig
from tests.support.redis_server import HOST, RedisServer

FOLDER = Path(__file__).parents[2] / "worker_image"
QUEUE = "checked"
TASKS = """
from headrace import Fail, Headrace
app = Headrace()

@app.task(queue="checked")
def nothing(number: int) -> int:
    {body}
"""


def command(*arguments: str, url: str, tenant: str, folder: Path = FOLDER) -> tuple[list[str], dict[str, object]]:
    env = os.environ | {"HEADRACE_REDIS_URL": url, "HEADRACE_TENANT": tenant}
    return [sys.executable, "-m", *arguments], {"cwd": folder, "env": env}


def check(url: str, tenant: str, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    arguments = ("headrace_samples.check", f"--queue={QUEUE}", f"--timeout={timeout_s:g}")
    words, options = command(*arguments, url=url, tenant=tenant)
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload]


async def publish(url: str, tenant: str) -> None:
    async with Headrace(url, tenant=tenant, queues=[QueueConfig(QUEUE)]) as app:
        await app.stats(QUEUE)


def worker(folder: Path, url: str, tenant: str, tasks: str) -> subprocess.Popen[bytes]:
    words, options = command(
        "headrace.cli.main", "worker", tasks, f"--queue={QUEUE}", url=url, tenant=tenant, folder=folder
    )
    return subprocess.Popen(words, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return number", 0, "7 went in, 7 came out"),
        ("return number + 1", 1, "was enqueued with 7, and its result is 8"),
        ("raise Fail('the disk is full')", 1, "was run and failed"),
    ],
    ids=["sound", "wrong", "failing"],
)
async def test_it_tells_what_a_worker_made_of_the_task(redis_server: RedisServer, tenant, tmp_path, body, status, said):
    await publish(redis_server.url, tenant)
    (tmp_path / "tasks.py").write_text(TASKS.format(body=body))
    process = worker(tmp_path, redis_server.url, tenant, "tasks:app")
    try:
        done = check(redis_server.url, tenant, timeout_s=60)
    finally:
        process.terminate()
        process.wait(60)
    assert done.returncode == status, done.stderr
    assert f"is in the queue {QUEUE} of the tenant {tenant}" in done.stdout
    assert said in (done.stderr if status else done.stdout)


async def test_the_workers_of_the_samples_pass_it(redis_server: RedisServer, tenant):
    await publish(redis_server.url, tenant)
    process = worker(FOLDER, redis_server.url, tenant, "headrace_samples.tasks:app")
    try:
        done = check(redis_server.url, tenant, timeout_s=60)
    finally:
        process.terminate()
        process.wait(60)
    assert (done.returncode, done.stderr) == (0, "")
    async with Headrace(redis_server.url, tenant=tenant) as anybody:
        assert await anybody.queue_names() == [QUEUE], "the samples have left a queue of their own"


async def test_without_a_worker_it_says_where_to_look(redis_server: RedisServer, tenant):
    await publish(redis_server.url, tenant)
    done = check(redis_server.url, tenant, timeout_s=1)
    assert done.returncode == 1
    assert "No worker came for the task" in done.stderr
    assert f"`kubectl --namespace {tenant} describe workerpool {QUEUE}`" in done.stderr


def test_a_queue_that_nobody_publishes_is_the_operators_matter(redis_server: RedisServer, tenant):
    done = check(redis_server.url, tenant, timeout_s=1)
    assert done.returncode == 1
    assert f"The operator did not publish the queue {QUEUE} within 1 s" in done.stderr
    assert f"`kubectl --namespace {tenant} describe taskqueue {QUEUE}`" in done.stderr


def test_without_redis_it_says_so(tenant):
    server = RedisServer()
    done = check(f"redis://{HOST}:{server.port}/0", tenant, timeout_s=1)
    assert done.returncode == 1
    assert "Redis could not be used within 1 s" in done.stderr
