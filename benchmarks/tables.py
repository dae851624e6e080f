"""The Markdown of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.bars import bars
from benchmarks.markdown import table
from benchmarks.own import tables as own_tables

Results = dict[str, Any]
Row = dict[str, Any]

FEW = 100
"""With fewer samples a p99 is only the slowest one, so their number is shown."""


def document(results: Results, *, chart: str | None) -> str:
    """Everything between the markers, for one or more passes (without and with the append-only file)."""
    parts = [_about(results), "## Bars met", bars(results)]
    for run in results["passes"]:
        parts += [f"## {run['title']}", speed(run["peers"])]
        if chart and run is results["passes"][0]:
            parts.append(f"![Tasks per second, drain and enqueue]({chart})")
        parts += ["### Headrace to each", ratios(run["peers"])]
    parts += own_tables.document(results.get("own", {}))
    if results["passes"]:
        parts += ["## Settings and promises", settings(results["passes"][0]["peers"]), _method(results)]
    return "\n\n".join(parts) + "\n"


def speed(peers: Sequence[Row]) -> str:
    """The figures, and beside each rate Redis' share of one core while it was taken."""
    measured = {measure for peer in peers for measure in peer["figures"]}
    columns = [column for column in _COLUMNS if column[0] in measured]
    header = ("queue", *(title for _, title, _ in columns), "delivery")
    rows = []
    for peer in peers:
        if peer.get("missing"):
            cells = [f"not run: {peer['missing']}", *[""] * (len(columns) - 1)]
        else:
            cells = [show(peer, measure) for measure, _, show in columns]
        rows.append((f"{peer['title']} ({peer['language']})", *cells, peer["delivery"]))
    return table(header, rows, right=range(1, 1 + len(columns))) + (
        "\n\nTasks per second; in brackets, the share of one core that Redis used meanwhile."
    )


def ratios(peers: Sequence[Row]) -> str:
    """How many times as fast Headrace is, from the same run. Above 1 is better, for latency as well."""
    own = next((peer for peer in peers if peer["name"] == "headrace" and not peer.get("missing")), None)
    others = [peer for peer in peers if peer["name"] != "headrace" and not peer.get("missing")]
    if own is None or not others:
        return "Headrace or every peer is missing from this run."
    header = ("beside", "drain, 1", "drain, 2", "bulk", "one by one", "latency p50", "latency p99")
    rows = []
    for peer in others:
        rows.append(
            (
                peer["title"],
                *(_ratio(own, peer, measure, "per_s") for measure in ("drain_1", "drain_2", "bulk", "single")),
                _ratio(peer, own, "latency", "p50_ms"),
                _ratio(peer, own, "latency", "p99_ms"),
            )
        )
    return table(header, rows, right=range(1, 7))


def settings(peers: Sequence[Row]) -> str:
    """How each was set up, and what it promises in that setting."""
    header = ("queue", "versions", "settings", "delivery", "lease", "stale worker refused")
    rows = [
        (
            peer["title"],
            ", ".join(f"{_package(name)} {number}" for name, number in peer["versions"].items()),
            peer["settings"],
            peer["delivery"],
            peer["lease"],
            peer["fencing"],
        )
        for peer in peers
    ]
    return table(header, rows)


def _package(name: str) -> str:
    """The last part of a Go module's path that is not its major version; other names as they are."""
    parts = [part for part in name.split("/") if not (part[0] == "v" and part[1:].isdigit())]
    return parts[-1]


def _about(results: Results) -> str:
    machine = results["machine"]
    return (
        f"Measured {machine['date']} on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, "
        f"{machine['system']}; Redis {machine['redis']}, Python {machine['python']}, Node {machine['node']}, "
        f"Go {machine['go']}. Producer, workers and Redis share these cores."
    )


def _method(results: Results) -> str:
    effort = results["effort"]
    return (
        f"Each rate is the median of {effort['rounds']} round(s), each latency of {effort['latency_rounds']}; peers "
        "take turns within each measure, on an emptied private Redis. Memory is that of "
        f"{effort['stored']:,} waiting tasks. Up to {effort['tasks']:,} no-op tasks with a payload of 100 bytes per "
        "drain, fewer for slower queues."
    )


def _rate(peer: Row, measure: str) -> str:
    figures = peer["figures"].get(measure)
    if figures is None:
        return "–"
    if "failed" in figures:
        return "failed"
    return f"{figures['per_s']:,.0f} ({figures['redis_cpu']:.0%})"


def _latency(peer: Row, measure: str) -> str:
    figures = peer["figures"].get(measure)
    if figures is None:
        return "–"
    if "failed" in figures:
        return "failed"
    few = f" ({figures['samples']:.0f} tasks)" if figures["samples"] < FEW else ""
    return f"{figures['p50_ms']:.1f} / {figures['p99_ms']:.1f} ms{few}"


def _idle(peer: Row, measure: str) -> str:
    figures = peer["figures"].get(measure)
    if figures is None:
        return "–"
    return "failed" if "failed" in figures else f"{figures['commands_per_s']:.1f}"


def _memory(peer: Row, measure: str) -> str:
    figures = peer["figures"].get(measure)
    if figures is None:
        return "–"
    return "failed" if "failed" in figures else f"{figures['bytes_per_task']:,.0f} bytes"


_COLUMNS: tuple[tuple[str, str, Callable[[Row, str], str]], ...] = (
    ("drain_1", "drain, 1 process", _rate),
    ("drain_2", "drain, 2 processes", _rate),
    ("bulk", "enqueue, bulk", _rate),
    ("single", "enqueue, one by one", _rate),
    ("latency", "idle → handler p50 / p99", _latency),
    ("idle", "idle commands/s", _idle),
    ("memory", "memory per waiting task", _memory),
)


def _ratio(upper: Row, lower: Row, measure: str, key: str) -> str:
    try:
        return f"{upper['figures'][measure][key] / lower['figures'][measure][key]:.1f}×"
    except (KeyError, TypeError, ZeroDivisionError):
        return "–"
