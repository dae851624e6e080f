"""Enqueueing without an event loop: straight over a socket, and the long way round whenever that is not enough."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Headrace, InvalidInput, QueueConfig
from headrace.app.blocking import BlockingTask, Portal
from tests.support.redis_server import RedisServer
from tests.support.tls import make_tls_files

PATIENCE_S = 60.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server the test may break; it keeps its data across restarts."""
    with RedisServer([("appendonly", "yes"), ("appendfsync", "always")]) as started:
        yield started


@pytest.fixture
def opened() -> Iterator[Callable[..., BlockingTask[..., Any]]]:
    """A task of an app that has enqueued once (argument 0), so that the short way is known from then on."""
    apps: list[Headrace] = []

    def open_app(url: str, tenant: str = "acme") -> BlockingTask[..., Any]:
        app = Headrace(url, tenant=tenant, queues=[QueueConfig("jobs")])
        apps.append(app)
        task = app.remote("t", queue="jobs").blocking
        task.enqueue(0)
        return task

    yield open_app
    for app in apps:
        app.blocking.close()


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was handed to the thread with the event loop."""
    taken: list[str] = []
    call = Portal.call

    def noting(portal: Portal, coroutine: Any) -> Any:
        taken.append(coroutine.__name__)
        return call(portal, coroutine)

    monkeypatch.setattr(Portal, "call", noting)
    return taken


def stored(server: RedisServer, tenant: str = "acme") -> int:
    with server.client() as client:
        return int(client.hget(f"hr:{{{tenant}/jobs}}:stats", "enqueued") or 0)


def test_only_the_first_enqueue_takes_the_long_way(server, opened, long_ways):
    task = opened(server.url)
    assert long_ways == ["_enqueue"]
    handles = [task.enqueue(n) for n in range(1, 20)]
    assert long_ways == ["_enqueue"]
    assert [handle.record().args for handle in handles] == [[n] for n in range(1, 20)]


def test_a_duplicate_is_told(server, opened, long_ways):
    task = opened(server.url).options(idempotency_key="once")
    first, second = task.enqueue(1), task.enqueue(2)
    assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)
    assert long_ways == ["_enqueue"]


def test_what_is_refused_is_named(server, opened):
    task = opened(server.url)
    with pytest.raises(InvalidInput, match="priority"):
        task.options(priority="urgent").enqueue(1)
    assert stored(server) == 1


def test_forgotten_scripts_restarts_and_a_lost_definition_go_unnoticed(server, opened, long_ways):
    task = opened(server.url)
    with server.client() as client:
        client.script_flush()
    task.enqueue(1)
    server.kill()
    server.start()
    task.enqueue(2)
    assert stored(server) == 3
    with server.client() as client:
        client.flushall()
    task.enqueue(3)
    assert stored(server) == 1
    assert len(long_ways) == 4
    task.enqueue(4)
    assert len(long_ways) == 4, "the short way is taken again"


def test_a_late_answer_is_never_taken_for_another_one(server, opened):
    task = opened(f"{server.url}?command_timeout_s=0.3")
    with server.client() as client:
        client.execute_command("CLIENT", "PAUSE", "700", "ALL")
    handles = [task.enqueue(n) for n in range(1, 6)]
    assert stored(server) == 6
    assert [handle.record().args for handle in handles] == [[n] for n in range(1, 6)]


def test_many_threads_share_a_bounded_number_of_connections(server, opened):
    task = opened(f"{server.url}?pool_size=3")
    before = threading.active_count()
    threads = [threading.Thread(target=lambda: [task.enqueue(n) for n in range(50)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert threading.active_count() == before
    assert stored(server) == 501
    with server.client() as client:
        # As many on the long way, and the one that asks.
        assert len(client.client_list(_type="normal")) <= 3 + 3 + 1


def _enqueue_in_child(task: BlockingTask[..., Any], done: Any) -> None:
    for n in range(50):
        task.enqueue(n)
    done.put(True)


def test_a_forked_child_has_connections_of_its_own(server, opened):
    task = opened(server.url)
    task.enqueue(1)  # over a connection that the child inherits
    fork = multiprocessing.get_context("fork")
    done = fork.Queue()
    child = fork.Process(target=_enqueue_in_child, args=(task, done))
    child.start()
    for n in range(50):
        task.enqueue(n)
    assert done.get(timeout=PATIENCE_S)
    child.join()
    assert stored(server) == 102


def test_logins_tls_and_unix_sockets(tmp_path: Path, opened, long_ways):
    with RedisServer(tls=make_tls_files(tmp_path), password="secret") as server:
        opened(server.url).enqueue(1)
        assert long_ways == ["_enqueue"]
    with RedisServer() as server:
        opened(f"unix://{server.unix_socket}").enqueue(1)
        assert long_ways == ["_enqueue"] * 2
