"""The command line: install, measure, show, publish."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from benchmarks import publish, registry, schedule, tables, versions
from benchmarks.bars import bars
from benchmarks.install import CannotInstall, Installed, install
from benchmarks.own import run as own
from benchmarks.own import tables as own_tables
from benchmarks.peer import Peer
from benchmarks.processes import REPOSITORY, ProgramFailed
from benchmarks.redis_server import Server, private_server
from headrace.model.errors import HeadraceError

PAGE = REPOSITORY / "docs" / "performance.md"
console = Console(stderr=True, highlight=False)
_STARTED_S = time.monotonic()


def main() -> int:
    """Run the bench; 1 when a measure failed."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupted)  # so that everything we started is stopped on the way out
    effort = schedule.QUICK if options.quick else schedule.FULL
    if options.tasks:
        effort = dataclasses.replace(effort, tasks=options.tasks)
    if options.rounds:
        effort = dataclasses.replace(effort, rounds=options.rounds)

    beside = tuple(measure for measure in options.measures if measure in schedule.MEASURES)
    alone = tuple(measure for measure in options.measures if measure in own.MEASURES)
    results: dict[str, Any] = {"effort": dataclasses.asdict(effort), "passes": [], "own": {}, "failed": []}
    if beside:
        _run_beside(results, options, effort, beside)
    if alone:
        _run_alone(results, effort, alone)
    sys.stdout.write(f"\n{bars(results)}\n")

    if options.output:
        publish.write_json(results, options.output)
        console.print(f"Everything is in {options.output}.")
    if options.publish:
        publish.write_page(results, PAGE)
        console.print(f"{PAGE.relative_to(REPOSITORY)} is written.")
    failed = any("failed" in f for run in results["passes"] for row in run["peers"] for f in row["figures"].values())
    return 1 if failed or results["failed"] else 0


def _run_beside(
    results: dict[str, Any], options: argparse.Namespace, effort: schedule.Effort, chosen: tuple[str, ...]
) -> None:
    """The measures of every queue, once per way of persistence."""
    peers = registry.load(options.peers)
    installed, missing = _install(peers, options.concurrency)
    modes = {"no": [False], "yes": [True], "both": [False, True]}[options.appendonly]
    for appendonly in modes:
        title = "With `appendonly yes`, `appendfsync everysec`" if appendonly else "Without persistence"
        if results["passes"]:
            effort, chosen = effort.again(), tuple(measure for measure in chosen if measure not in schedule.ONCE)
        with private_server(appendonly=appendonly) as server:
            results.setdefault("machine", versions.machine(server.client))
            figures = _measure(installed, server, effort, chosen, title)
        rows = [_row(peer, installed, missing, figures) for peer in peers]
        results["passes"].append({"title": title, "appendonly": appendonly, "peers": rows})
        sys.stdout.write(f"\n{title}\n\n{tables.speed(rows)}\n\n{tables.ratios(rows)}\n")


def _run_alone(results: dict[str, Any], effort: schedule.Effort, chosen: tuple[str, ...]) -> None:
    """The measures of Headrace alone."""
    with private_server(appendonly=False) as server:
        results.setdefault("machine", versions.machine(server.client))
        for measure in chosen:
            try:
                results["own"][measure] = own.run(measure, server, effort, _tell)
            except (ProgramFailed, RuntimeError, HeadraceError) as error:
                # It may name paths of this machine: shown, and not kept. The other figures must not be lost by it.
                console.print(f"{measure}: {error}", markup=False, soft_wrap=True)
                results["failed"].append(measure)
    sys.stdout.write("\n" + "\n\n".join(own_tables.document(results["own"])) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Headrace beside other task queues on one private Redis.",
        epilog="Example: python -m benchmarks --quick --peers headrace,bullmq,asynq --output /tmp/bench.json",
    )
    parser.add_argument(
        "--peers", type=_names(registry.NAMES), default=registry.NAMES, metavar="A,B", help="only these queues"
    )
    measures = (*schedule.MEASURES, *own.MEASURES)
    parser.add_argument(
        "--measures", type=_names(measures), default=measures, metavar="A,B",
        help=f"only these of {', '.join(schedule.MEASURES)}; of Headrace alone, {', '.join(own.MEASURES)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one short round: for trying out, not for figures")
    parser.add_argument("--tasks", type=_positive, metavar="N", help="tasks of a drain for the fastest queue")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="how often each measure is repeated")
    parser.add_argument(
        "--concurrency", type=_positive, metavar="N", help="instead of each queue's own setting, to find the best"
    )
    parser.add_argument(
        "--appendonly", choices=("no", "yes", "both"), default="no", help="Redis with an append-only file, everysec"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--publish", action="store_true", help="write tables and chart into docs/performance.md")
    return parser.parse_args()


def _install(peers: list[Peer], concurrency: int | None) -> tuple[list[Installed], dict[str, str]]:
    ready, missing = [], {}
    for number, peer in enumerate(peers, 1):
        outcome = "installed"
        with console.status(f"[{number}/{len(peers)}] installing {peer.title} …"):
            try:
                ready.append(install(peer, concurrency=concurrency))
            except CannotInstall as error:
                # The reason may name a registry or a path of this machine: it is shown, and kept out of all files.
                outcome = f"could not be installed: {error}"
                missing[peer.name] = "could not be installed"
        console.print(f"[{number}/{len(peers)}] {peer.title}: {outcome}", markup=False, soft_wrap=True)
    return ready, missing


def _measure(
    installed: list[Installed], server: Server, effort: schedule.Effort, chosen: tuple[str, ...], title: str
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """All rounds of all measures. One that fails is noted and not repeated; the others go on."""
    taken: dict[tuple[str, str], list[dict[str, Any]]] = {}
    steps = list(schedule.steps(installed, chosen, effort))
    for number, (measure, peer) in enumerate(steps, 1):
        key = (peer.peer.name, measure)
        if any("failed" in figures for figures in taken.get(key, [])):
            continue
        with console.status(f"{title}: {number}/{len(steps)} {measure} of {peer.peer.title} …"):
            try:
                figures = schedule.run(measure, peer, server, effort)
            except ProgramFailed as error:
                # What the program wrote last may hold paths of this machine: it is shown, and not kept.
                console.print(f"{peer.peer.title}: {error}", markup=False, soft_wrap=True)
                figures = {"failed": str(error).partition("\n")[0]}
        taken.setdefault(key, []).append(figures)
        _tell(f"{number:3d}/{len(steps)}  {measure:8} {peer.peer.title:18} {_short(figures)}")
    return taken


def _tell(line: str) -> None:
    """A line of progress, with the seconds since the start."""
    console.print(f"{time.monotonic() - _STARTED_S:6.0f} s  {line}", markup=False, soft_wrap=True)


def _row(
    peer: Peer, installed: list[Installed], missing: dict[str, str], taken: dict[tuple[str, str], list[dict[str, Any]]]
) -> dict[str, Any]:
    found = next((one for one in installed if one.peer is peer), None)
    figures = {}
    for (name, measure), rounds in taken.items():
        if name == peer.name:
            failed = next((one for one in rounds if "failed" in one), None)
            figures[measure] = failed or schedule.median(rounds)
    return {
        "name": peer.name,
        "title": peer.title,
        "language": peer.language,
        "missing": missing.get(peer.name),
        "versions": versions.package_versions(found) if found else {},
        "concurrency": found.concurrency if found else None,
        "settings": peer.settings.replace("{concurrency}", str(found.concurrency if found else peer.concurrency)),
        "delivery": peer.delivery,
        "lease": peer.lease,
        "fencing": peer.fencing,
        "figures": figures,
    }


def _short(figures: dict[str, Any]) -> str:
    if "failed" in figures:
        return f"failed: {figures['failed']}"
    shown = {key: value for key, value in figures.items() if isinstance(value, int | float)}
    return "  ".join(
        f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items()
    )


def _names(known: tuple[str, ...]) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return parse


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _interrupted(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
