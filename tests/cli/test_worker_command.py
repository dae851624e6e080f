"""`headrace worker`: help with an example, and mistakes that name what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer, free_port

APP = """
from headrace import Headrace, QueueConfig
app = Headrace({url!r}, tenant="t", queues=[QueueConfig("jobs")])
empty = Headrace({url!r}, tenant="t")
number = 7

@app.task(queue="jobs")
def act() -> None: ...

lost = Headrace({url!r}, tenant="t")

@lost.task(queue="undeclared")
def act_too() -> None: ...
"""


def headrace(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
    )


def test_help_shows_the_commands_and_an_example() -> None:
    assert "worker" in headrace("--help").stdout
    shown = headrace("worker", "--help").stdout
    assert "Example: headrace worker myproject.tasks:app --queue email --concurrency 20" in shown
    for option in ("--queue", "--concurrency", "--capability", "--grace", "--health-port", "--log-level"):
        assert option in shown


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tasks.py").write_text(APP.format(url=redis_server.url))
    (folder / "broken.py").write_text("import not_installed_anywhere\n")
    (folder / "unreachable.py").write_text(APP.format(url=f"redis://:secret-word@127.0.0.1:{free_port()}/0"))
    return folder


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("tasks", "headrace: APP: 'tasks' is not module:attribute; write for example myproject.tasks:app"),
        ("nothing:app", "headrace: APP: there is no module 'nothing'; run the command from your project's folder"),
        ("tasks:nothing", "headrace: APP: 'nothing' in tasks is nothing, not a Headrace app"),
        ("tasks:number", "headrace: APP: 'number' in tasks is a int, not a Headrace app"),
        (
            "tasks:empty",
            "headrace: queues: the app has no tasks; register some with @app.task(queue=...) or name queues",
        ),
        ("tasks:lost", "headrace: queue: 'undeclared' is not defined for tenant 't'"),
        ("broken:app", "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
    ],
)
def test_a_wrong_app_is_one_clear_sentence(project: Path, spec: str, problem: str) -> None:
    done = headrace("worker", spec, folder=project)
    assert done.returncode != 0
    assert problem in done.stderr
    assert ("Traceback" in done.stderr) == (spec == "broken:app"), "a traceback only where the user's own code failed"


def test_an_unreachable_redis_is_one_clear_sentence_without_the_password(project: Path) -> None:
    done = headrace("worker", "unreachable:app", "--log-level", "error", folder=project)
    assert done.returncode == 1
    assert "headrace: redis://127.0.0.1:" in done.stderr
    assert "unavailable" in done.stderr
    assert "secret-word" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--concurrency", "0"), "--concurrency"),
        (("--grace", "-1"), "--grace"),
        (("--queue", "Bad Name"), "queues: 'Bad Name' is not allowed"),
        (("--capability", "GPU"), "capabilities: 'GPU' is not allowed"),
    ],
)
def test_wrong_options_are_named(project: Path, arguments: tuple[str, ...], problem: str) -> None:
    done = headrace("worker", "tasks:app", *arguments, folder=project)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
