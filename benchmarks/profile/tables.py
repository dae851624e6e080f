"""The profile as Markdown."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.measures import Figures

BEFORE = Path(__file__).parent / "before.json"
"""The profile of an earlier commit, to compare with; `python -m benchmarks.profile --output` writes such a file."""
NEGLIGIBLE_US = 0.05


def profile(figures: Figures) -> str:
    """Microseconds of processor time per task, by part."""
    worker, redis = figures["worker_us"], figures["redis_us"]
    rows = [("**worker process**", f"**{worker['all']:.1f}**", "100 %")]
    rows += [(name, f"{used:.1f}", f"{used / worker['all']:.0%}") for name, used in worker["groups"].items()]
    rows += [
        (f"*of all that, {label}*", f"{worker[key]:.1f}", f"{worker[key] / worker['all']:.0%}")
        for key, label in (("collecting", "garbage collection"), ("kernel", "in the kernel"))
    ]
    rows.append(("**Redis**", f"**{redis['all']:.1f}**", "100 %"))
    rows += [
        (f"script `{name}`", f"{used:.1f}", f"{used / redis['all']:.0%}")
        for name, used in redis["by_script"].items()
        if used >= NEGLIGIBLE_US
    ]
    rest = redis["all"] - redis["scripts"]
    rows.append(("reading, parsing, answering", f"{rest:.1f}", f"{rest / redis['all']:.0%}"))
    return f"{figures['per_s']:,.0f} tasks/s with the sampler on, {figures['samples']:,} samples.\n\n" + table(
        ("part", "µs per task", "share"), rows, right=range(1, 3)
    )


def comparison(after: Figures) -> str:
    """The profile beside the one that was stored before the last work on speed."""
    before: Figures = json.loads(BEFORE.read_text())
    rows = [
        _compared("**worker process**", before["worker_us"]["all"], after["worker_us"]["all"]),
        *_compared_parts("", before["worker_us"]["groups"], after["worker_us"]["groups"]),
        _compared("*of all that, garbage collection*", *(one["worker_us"]["collecting"] for one in (before, after))),
        _compared("*of all that, in the kernel*", *(one["worker_us"]["kernel"] for one in (before, after))),
        _compared("**Redis**", before["redis_us"]["all"], after["redis_us"]["all"]),
        *_compared_parts("script ", before["redis_us"]["by_script"], after["redis_us"]["by_script"]),
    ]
    return table(("µs of processor time per task", "before", "after"), rows, right=range(1, 3)) + (
        f"\n\nOne worker process drains no-op tasks; {before['per_s']:,.0f} tasks/s before, {after['per_s']:,.0f} "
        f"after, with the sampler on. *Before* is commit {before['commit']}. The time of C code counts for the Python "
        "function that called it.\n\n" + functions(after)
    )


def _compared_parts(prefix: str, before: dict[str, float], after: dict[str, float]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys((*before, *after))
    return [
        _compared(f"{prefix}{name}", before.get(name, 0.0), after.get(name, 0.0))
        for name in names
        if max(before.get(name, 0.0), after.get(name, 0.0)) >= NEGLIGIBLE_US
    ]


def _compared(label: str, before: float, after: float) -> tuple[str, str, str]:
    return label, f"{before:.1f}", f"{after:.1f}"


def functions(figures: Figures) -> str:
    """The busiest Python functions of the worker."""
    rows = [(f"`{place}`", f"{used:.1f}") for place, used in figures["worker_us"]["functions"].items()]
    return table(("function (with the C code it calls)", "µs per task"), rows, right=range(1, 2))
