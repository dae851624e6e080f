"""The Markdown of the measures of Headrace alone."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.measures import Figures
from benchmarks.own.bounds import BOUNDS
from benchmarks.own.durations import out_of_reach
from benchmarks.profile import tables as profile_tables

_WHERE = {
    "loop": "event loop, `asyncio.sleep`",
    "thread": "thread, `time.sleep`",
    "process": "process, `time.sleep`",
    "spin": "process, busy",
}


def document(own: dict[str, Any]) -> list[str]:
    """The parts of the page for what was measured."""
    parts = []
    if rows := own.get("durations"):
        parts += ["## Tasks that take a while", durations(rows)]
    if rows := own.get("growth"):
        parts += ["## Growth", growth(rows)]
    if scripts := own.get("scripts"):
        parts += ["## Time in scripts", script_times(scripts), "What bounds each script:", bounds()]
    if figures := own.get("profile"):
        parts += ["## Where the time goes", profile_tables.comparison(figures)]
    return parts


def durations(rows: list[Figures]) -> str:
    """Tasks per second beside two ideals."""
    header = (
        "handler", "takes", "at once", "concurrency ÷ duration", "without a queue", "Headrace",
        "of concurrency ÷ duration", "of without a queue",
    )  # fmt: skip
    lines = []
    for row in rows:
        share = f"{row['per_s'] / row['bare_per_s']:.1%}"
        if reason := out_of_reach(row):
            share = f"{share} ({reason})"
        lines.append(
            (
                _WHERE[row["kind"]],
                f"{row['ms']:g} ms",
                str(row["concurrency"]),
                *(f"{row[key]:,.0f}" for key in ("arithmetic_per_s", "bare_per_s", "per_s")),
                f"{row['per_s'] / row['arithmetic_per_s']:.1%}",
                share,
            )
        )
    return table(header, lines, right=range(1, 8)) + (
        "\n\nTasks per second. *Without a queue*: the very same handlers at the same concurrency, called by the "
        "worker's own loop, threads or processes, with no queue. That is the ideal that counts: a sleep of 1 ms takes "
        "longer than 1 ms, and it takes time to wake a thread or a process. "
        "A busy handler counts its processor time; it shares the cores with the worker and Redis."
    )


def growth(rows: list[Figures]) -> str:
    """The cost of a task, and how it compares to that with the fewest waiting."""
    first = rows[0]
    header = (
        "waiting tasks",
        "Redis CPU",
        "in scripts",
        "round trips",
        "Redis CPU, to the first row",
        "memory per task",
    )
    return table(
        header,
        [
            (
                row["title"],
                *(f"{row[key]:.1f} µs" for key in ("redis_cpu_us", "redis_script_us", "wall_us")),
                f"{row['redis_cpu_us'] / first['redis_cpu_us']:.2f}×",
                f"{row['bytes_per_task']:,.0f} bytes",
            )
            for row in rows
        ],
        right=range(1, 6),
    ) + (
        "\n\nPer task, claimed and settled in batches as a busy worker does it; the median of many rounds, after each "
        "of which the queue is filled up again."
    )


def script_times(scripts: dict[str, Any]) -> str:
    """Percentiles per script."""
    rows = [
        (row["call"], str(row["calls"]), *(f"{row[key]:.2f} ms" for key in ("p50_ms", "p99_ms", "max_ms")))
        for row in scripts["calls"]
    ]
    return f"While {scripts['waiting']:,} tasks wait; for so long nobody else is served by Redis.\n\n" + table(
        ("call", "calls", "p50", "p99", "longest"), rows, right=range(1, 5)
    )


def bounds() -> str:
    """What keeps scripts short."""
    return table(("script", "its work grows with", "bounded by"), [(f"`{row[0]}`", *row[1:]) for row in BOUNDS])
