"""The command line: simulate, show, publish."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.processes import REPOSITORY
from benchmarks.scaling import picture, report, traces
from benchmarks.scaling.clairvoyant import Clairvoyant
from benchmarks.scaling.model import Scaler, Settings, Simulation
from benchmarks.scaling.policy import Policy
from benchmarks.scaling.report import Comparison
from benchmarks.scaling.traces import Trace

PAGE: Final = REPOSITORY / "docs" / "scaling.md"
BEGIN: Final = "<!-- simulator: begin -->"
END: Final = "<!-- simulator: end -->"
SEEDS_PUBLISHED: Final = 5

_EXAMPLE: Final = """\
examples:
  python -m benchmarks.scaling
  python -m benchmarks.scaling --traces bursts --seed 7
  python -m benchmarks.scaling --record load.jsonl --levels urgent,normal
"""


def main() -> int:
    """Run the simulations; 1 when a recorded load cannot be read."""
    options = _options()
    seeds = range(options.seed, options.seed + options.seeds)
    try:
        loads = (
            [[traces.recorded(options.record, options.levels)]]
            if options.record
            else [[traces.SYNTHETIC[name](seed) for seed in seeds] for name in options.traces]
        )
    except (OSError, traces.BadRecord) as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        comparisons = [[compare(trace, Settings(), progress) for trace in load] for load in loads]
    # In a file or a pipe the table must not be squeezed into the 80 columns that are assumed there.
    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(
        report.screen([load[0] for load in comparisons])
    )
    sys.stdout.write("\n".join(report.verdicts(comparisons)) + "\n")
    if options.publish:
        publish(comparisons, PAGE)
        console.print(f"{PAGE.relative_to(REPOSITORY)} is written.")
    return 0


def compare(trace: Trace, settings: Settings, progress: Progress | None = None) -> Comparison:
    """The same load for the policy and for the clairvoyant."""

    def run(scaler: Scaler, who: str) -> Simulation:
        return Simulation(trace, scaler, settings, _told(progress, f"{trace.name}, {who}"))

    return Comparison(
        trace,
        settings,
        policy=run(Policy(), "policy").run(),
        clairvoyant=run(Clairvoyant(trace, settings), "clairvoyant").run(),
    )


def _told(progress: Progress | None, what: str) -> Callable[[float], None] | None:
    if progress is None:
        return None
    task = progress.add_task(what, total=1.0)
    return lambda share: progress.update(task, completed=share)


def publish(comparisons: Sequence[Sequence[Comparison]], page: Path) -> None:
    """Replace what is between the markers of the page, and the picture beside it. By load, and then by seed."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page.name} has no {BEGIN} … {END}")
    drawn = page.with_suffix(".svg")
    drawn.write_text(picture.svg([load[0] for load in comparisons]))
    page.write_text(f"{before}{BEGIN}\n\n{report.markdown(comparisons, drawn.name)}\n\n{END}{after}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description="Replay loads against the operator's scaling decision, and against one that knows what will come.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = tuple(traces.SYNTHETIC)
    parser.add_argument(
        "--traces", type=_some_of(known), default=known, metavar="A,B", help=f"only these of {', '.join(known)}"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the synthetic loads (default: %(default)s)")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help='a recorded load instead: lines of {"at_s", "level", "duration_s"}'
    )
    parser.add_argument(
        "--levels", type=_names, default=traces.LEVELS, metavar="A,B",
        help=f"the levels of the recorded load, highest first (default: {','.join(traces.LEVELS)})",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, default=None, metavar="N",
        help=f"so many, from that one on (default: 1, and {SEEDS_PUBLISHED} with --publish)",
    )  # fmt: skip
    parser.add_argument("--publish", action="store_true", help="write figures and picture into docs/scaling.md")
    options = parser.parse_args()
    if options.seeds is None:
        options.seeds = SEEDS_PUBLISHED if options.publish else 1
    if options.seeds < 1:
        parser.error("--seeds has to be at least 1")
    is_whole = not options.record and (options.traces, options.seed, options.seeds) == (known, 1, SEEDS_PUBLISHED)
    if options.publish and not is_whole:
        parser.error("only the whole run with its own seeds is published")
    return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        for name in (names := _names(text)):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
