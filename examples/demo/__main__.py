"""Start Redis, enqueue the burst, start the workers, watch, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace import QueueStats

TASKS = 4000
WORKERS = 2
CONCURRENCY = 20
PATIENCE_S = 120.0


def main() -> int:
    """Run the demonstration; 0 when every task was completed."""
    console = Console()
    if shutil.which("redis-server") is None:
        console.print("demo: redis-server is missing; run 'make setup' as root, or install the package redis-server")
        return 1
    with _redis() as url:
        os.environ["HEADRACE_REDIS_URL"] = url
        console.print(f"A private redis-server listens at {url}.")
        return asyncio.run(_demonstrate(console))


async def _demonstrate(console: Console) -> int:
    from examples.demo.tasks import LEVELS, app, work

    async with app:
        rng = random.Random(2026)
        levels = {number: rng.choice(LEVELS) for number in range(TASKS)}
        started_s = time.monotonic()
        await app.enqueue_many([work.options(priority=levels[n]).call(n) for n in range(TASKS)])
        console.print(f"{TASKS} tasks on {len(LEVELS)} levels enqueued in {time.monotonic() - started_s:.2f} s.")
        console.print(f"Starting {WORKERS} worker processes with {CONCURRENCY} slots each.\n")
        with _workers():
            started_s = time.monotonic()
            with Live(console=console, refresh_per_second=8, transient=not console.is_terminal) as live:
                while True:
                    stats = await app.stats("jobs")
                    elapsed_s = time.monotonic() - started_s
                    live.update(_picture(stats, elapsed_s))
                    if stats.finished + stats.dead_letter >= TASKS or elapsed_s > PATIENCE_S:
                        break
                    await asyncio.sleep(0.1)
        stats = await app.stats("jobs")
        console.print(_summary(stats, elapsed_s))
        return 0 if stats.counters.get("completed") == TASKS else 1


def _picture(stats: QueueStats, elapsed_s: float) -> Group:
    completed = stats.counters.get("completed", 0)
    table = Table("level", "waiting", "oldest", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name, level in stats.levels.items():
        table.add_row(name, f"{level.depth:5d}", f"{level.oldest_age_s:5.1f} s")
    line = Text(
        f"\nrunning {stats.executing:3d}   waiting for a retry {stats.delayed:3d}   workers {stats.workers.active}"
        f"   completed {completed}/{TASKS}   {completed / max(elapsed_s, 0.001):,.0f}/s"
    )
    return Group(table, line, ProgressBar(total=TASKS, completed=completed, width=60))


def _summary(stats: QueueStats, elapsed_s: float) -> Group:
    count = stats.counters.get
    table = Table("what", "figure", title="\nSummary", title_justify="left", box=None, pad_edge=False)
    table.add_row("completed", f"{count('completed', 0)} of {TASKS} in {elapsed_s:.1f} s")
    table.add_row("attempts that failed and were retried", str(count("retrying", 0)))
    table.add_row("dead letters", str(stats.dead_letter))
    table.add_row("waited, p50 / p99 of the last 1000", f"{stats.wait.p50_s:.2f} s / {stats.wait.p99_s:.2f} s")
    table.add_row(
        "ran, p50 / p99 of the last 1000", f"{stats.run.p50_s * 1000:.0f} ms / {stats.run.p99_s * 1000:.0f} ms"
    )
    return Group(table)


@contextlib.contextmanager
def _redis() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def _workers() -> Iterator[None]:
    command = [sys.executable, "-m", "headrace.cli.main", "worker", "examples.demo.tasks:app"]
    command += ["--concurrency", str(CONCURRENCY), "--log-level", "error"]
    workers = [subprocess.Popen(command) for _ in range(WORKERS)]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


if __name__ == "__main__":
    sys.exit(main())
