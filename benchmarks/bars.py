"""The bars that Headrace sets itself, and whether a run meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.markdown import table
from benchmarks.own.durations import out_of_reach

Row = dict[str, Any]
Bar = tuple[str, str, str]
"""The bar, what was measured, and whether it is met."""

DRAIN_TIMES = 2.0
DRAIN_PYTHON_TIMES = 6.0
BULK_TIMES = 2.0
IDLE_COMMANDS_PER_S = 2.0
IDEAL_SHARE = 0.95
GROWTH_TIMES = 1.3
SCRIPT_MS = 2.0


def bars(results: dict[str, Any]) -> str:
    """A table of all bars that this run has figures for, from its first pass."""
    rows = list(_beside_others(results["passes"][0]["peers"])) if results["passes"] else []
    rows += _alone(results.get("own", {}))
    if not rows:
        return "This run has no figures for any bar."
    return table(("bar", "measured", "met"), rows)


def _beside_others(peers: Sequence[Row]) -> Iterator[Bar]:
    own = next((peer for peer in peers if peer["name"] == "headrace"), None)
    others = [peer for peer in peers if peer["name"] != "headrace"]
    if own is None:
        return
    python = [peer for peer in others if peer["language"] == "Python"]
    surviving = [peer for peer in python if peer["delivery"].startswith("at least once")]
    for measure, among, who, times in (
        ("drain_1", others, "fastest queue of any language", DRAIN_TIMES),
        ("drain_1", surviving, "fastest Python queue that delivers at least once", DRAIN_PYTHON_TIMES),
        ("drain_2", others, "two processes of the fastest queue", DRAIN_TIMES),
        ("bulk", others, "fastest queue", BULK_TIMES),
        ("single", python, "fastest Python queue", 1.0),
    ):
        yield from _times(own, among, measure, who, times)
    for key, label in (("p50_ms", "p50"), ("p99_ms", "p99")):
        yield from _no_worse(own, others, "latency", key, f"idle → handler, {label}: no worse than the best", "ms")
    idle = _figure(own, "idle", "commands_per_s")
    if idle is not None:
        yield (
            f"idle worker: fewer than {IDLE_COMMANDS_PER_S:g} commands per second",
            f"{idle:.1f}",
            _met(idle < IDLE_COMMANDS_PER_S),
        )
    yield from _not_the_highest(own, others)


_NAMES = {
    "drain_1": "drain, 1 process",
    "drain_2": "drain, 2 processes",
    "bulk": "enqueue, bulk",
    "single": "enqueue, one by one",
}


def _times(own: Row, others: Sequence[Row], measure: str, who: str, times: float) -> Iterator[Bar]:
    mine, best = _figure(own, measure, "per_s"), _best(others, measure, "per_s", max)
    if mine is None or best is None:
        return
    title, theirs = best
    wanted = "at least as fast as the" if times == 1.0 else f"{times:g}× the"
    yield (
        f"{_NAMES[measure]}: {wanted} {who}",
        f"{mine:,.0f}/s, {mine / theirs:.1f}× {title} ({theirs:,.0f}/s)",
        _met(mine >= times * theirs),
    )


def _no_worse(own: Row, others: Sequence[Row], measure: str, key: str, label: str, unit: str) -> Iterator[Bar]:
    mine, best = _figure(own, measure, key), _best(others, measure, key, min)
    if mine is None or best is None:
        return
    title, theirs = best
    yield label, f"{mine:.2f} {unit}; {title} {theirs:.2f} {unit}", _met(mine <= theirs)


def _not_the_highest(own: Row, others: Sequence[Row]) -> Iterator[Bar]:
    # The two that renew leases as Headrace does. Celery and RQ store more per task than any of the three.
    rivals = [peer for peer in others if peer["name"] in ("asynq", "bullmq")]
    mine, most = _figure(own, "memory", "bytes_per_task"), _best(rivals, "memory", "bytes_per_task", max)
    if mine is None or most is None:
        return
    title, theirs = most
    yield (
        "memory per waiting task: not the highest of Headrace, asynq and BullMQ",
        f"{mine:,.0f} bytes; {title} {theirs:,.0f}",
        _met(mine < theirs),
    )


def _alone(own: dict[str, Any]) -> Iterator[Bar]:
    if rows := own.get("durations"):
        yield _durations(rows)
    if rows := own.get("growth"):
        first = rows[0]["redis_cpu_us"]
        worst = max(rows[1:], key=lambda row: row["redis_cpu_us"])
        times = worst["redis_cpu_us"] / first
        yield (
            f"claim and settle: at most {GROWTH_TIMES:g}× the cost, however many tasks wait",
            f"{times:.2f}× at {worst['title']}",
            _met(times <= GROWTH_TIMES),
        )
    if scripts := own.get("scripts"):
        over = [row for row in scripts["calls"] if row["p99_ms"] >= SCRIPT_MS]
        worst = max(scripts["calls"], key=lambda row: row["p99_ms"])
        yield (
            f"every script: p99 under {SCRIPT_MS:g} ms with {scripts['waiting']:,} tasks waiting",
            f"{worst['p99_ms']:.2f} ms: {worst['call']}" + (f"; {len(over)} calls are over" if over else ""),
            _met(not over),
        )


def _durations(rows: Sequence[Row]) -> Bar:
    """Only where the ideal is within reach of a queue at all."""
    within_reach = [row for row in rows if out_of_reach(row) is None]
    below = [row for row in within_reach if row["per_s"] < IDEAL_SHARE * row["bare_per_s"]]
    lowest = min(within_reach, key=lambda row: row["per_s"] / row["bare_per_s"])
    return (
        f"tasks that take a while: within {1 - IDEAL_SHARE:.0%} of the same without a queue",
        f"{len(within_reach) - len(below)} of {len(within_reach)} cases; the lowest is "
        f"{lowest['per_s'] / lowest['bare_per_s']:.1%} "
        f"({lowest['kind']}, {lowest['ms']:g} ms, {lowest['concurrency']} at once)",
        _met(not below),
    )


def _figure(peer: Row, measure: str, key: str) -> float | None:
    value = peer["figures"].get(measure, {}).get(key)
    return None if value is None else float(value)


def _best(
    peers: Sequence[Row], measure: str, key: str, choose: Callable[[list[tuple[float, str]]], tuple[float, str]]
) -> tuple[str, float] | None:
    figures = [(value, peer["title"]) for peer in peers if (value := _figure(peer, measure, key)) is not None]
    if not figures:
        return None
    value, title = choose(figures)
    return title, value


def _met(is_met: bool) -> str:
    return "yes" if is_met else "**no**"
