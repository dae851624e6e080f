"""The README's first task: passes strict type checking, and does what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.redis_server import RedisServer

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def first_example() -> str:
    return python_blocks()[0]


def test_the_first_example_is_about_twenty_lines() -> None:
    assert len(first_example().strip().splitlines()) <= 22


def check_types(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={file.parent}/cache", str(file)],
        cwd=file.parent,
        env=os.environ | {"MYPYPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_example_passes_mypy_strict(tmp_path: Path) -> None:
    file = tmp_path / "mail.py"
    file.write_text(first_example())
    check_types(file)


def test_types_reach_the_users_program(tmp_path: Path) -> None:
    """What a user's type checker knows: arguments of enqueue, the type of result, plain calls, contexts."""
    file = tmp_path / "typed.py"
    file.write_text(
        first_example().split("async def main")[0]
        + """
from headrace import TaskContext


@app.task(queue="email")
def count(ctx: TaskContext, words: list[str]) -> int:
    ctx.progress(1)
    return len(words)


async def use() -> None:
    task = await send.enqueue("a@b.c", body="hi")
    answer: dict[str, str] = await task.result(timeout_s=1)
    direct: dict[str, str] = await send("a@b.c", "hi")
    number: int = await (await count.enqueue(["a"])).result()
    blocking: int = count.blocking.enqueue(["a"]).result()
    await app.enqueue_many([send.call("a@b.c", "hi"), count.options(priority="low").call([])])
    await send.enqueue(1, body="hi")  # type: ignore[arg-type]
    await send.enqueue("a@b.c")  # type: ignore[call-arg]
    await count.enqueue(["a"], 2)  # type: ignore[call-arg]
    wrong: str = await (await count.enqueue(["a"])).result()  # type: ignore[assignment]
    send.options(priorty="low")  # type: ignore[call-arg]
"""
    )
    check_types(file)


def test_the_first_example_does_what_the_readme_says(redis_server: RedisServer, tmp_path: Path) -> None:
    text = first_example().replace("redis://localhost:6379/0", redis_server.url)
    (tmp_path / "mail.py").write_text(text)
    worker = subprocess.Popen([sys.executable, "-m", "headrace.cli.main", "worker", "mail:app"], cwd=tmp_path)
    try:
        done = subprocess.run([sys.executable, "mail.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    finally:
        worker.terminate()
        worker.wait()
    expected = re.search(r"\$ python mail.py\n(.*)\n", README)
    assert expected is not None
    assert done.stdout == expected[1] + "\n"
    assert worker.returncode == 0


def test_the_other_examples_at_least_compile() -> None:
    for block in python_blocks()[1:]:
        compile(block, "README.md", "exec", flags=0x2000)  # top-level await allowed
