"""The Markdown of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Results = dict[str, Any]
Row = dict[str, Any]

FEW = 100
"""With fewer samples a p99 is only the slowest one, so their number is shown."""


def document(results: Results, *, chart: str | None) -> str:
    """Everything between the markers, for one or more passes (without and with the append-only file)."""
    parts = [_about(results)]
    for run in results["passes"]:
        parts += [f"## {run['title']}", speed(run["peers"])]
        if chart and run is results["passes"][0]:
            parts.append(f"![Tasks per second, drain and enqueue]({chart})")
        parts += ["### Headrace to each", ratios(run["peers"])]
    parts += ["## Settings and promises", settings(results["passes"][0]["peers"]), _method(results)]
    return "\n\n".join(parts) + "\n"


def speed(peers: Sequence[Row]) -> str:
    """The figures, and beside each rate Redis' share of one core while it was taken."""
    header = (
        "queue", "drain, 1 process", "drain, 2 processes", "enqueue, bulk", "enqueue, one by one",
        "idle → handler p50 / p99", "idle commands/s", "delivery",
    )  # fmt: skip
    rows = []
    for peer in peers:
        if peer.get("missing"):
            rows.append((peer["title"], f"not run: {peer['missing']}", "", "", "", "", "", peer["delivery"]))
            continue
        rows.append(
            (
                f"{peer['title']} ({peer['language']})",
                *(_rate(peer, measure) for measure in ("drain_1", "drain_2", "bulk", "single")),
                _latency(peer),
                _idle(peer),
                peer["delivery"],
            )
        )
    return _table(header, rows, right=range(1, 7)) + (
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
    return _table(header, rows, right=range(1, 7))


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
    return _table(header, rows)


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
        f"Each figure is the median of {effort['rounds']} round(s); peers take turns within each measure, on an "
        f"emptied private Redis. Up to {effort['tasks']:,} no-op tasks with a payload of 100 bytes per drain, fewer "
        "for slower queues."
    )


def _rate(peer: Row, measure: str) -> str:
    figures = peer["figures"].get(measure)
    if figures is None:
        return "–"
    if "failed" in figures:
        return "failed"
    return f"{figures['per_s']:,.0f} ({figures['redis_cpu']:.0%})"


def _latency(peer: Row) -> str:
    figures = peer["figures"].get("latency")
    if figures is None:
        return "–"
    if "failed" in figures:
        return "failed"
    few = f" ({figures['samples']:.0f} tasks)" if figures["samples"] < FEW else ""
    return f"{figures['p50_ms']:.1f} / {figures['p99_ms']:.1f} ms{few}"


def _idle(peer: Row) -> str:
    figures = peer["figures"].get("idle")
    if figures is None:
        return "–"
    return "failed" if "failed" in figures else f"{figures['commands_per_s']:.1f}"


def _ratio(upper: Row, lower: Row, measure: str, key: str) -> str:
    try:
        return f"{upper['figures'][measure][key] / lower['figures'][measure][key]:.1f}×"
    except (KeyError, TypeError, ZeroDivisionError):
        return "–"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: range = range(0)) -> str:
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---:" if index in right else "---" for index in range(len(header))) + "|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
