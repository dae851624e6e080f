"""The figures of a comparison, for the screen and for the page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.table import Table

from benchmarks.markdown import table
from benchmarks.scaling.model import Run, Settings
from benchmarks.scaling.traces import Trace

BAR: Final = 1.15
"""The policy may waste so much more than the clairvoyant."""

_HEADER: Final = ("load", "", "pod-seconds", "wasted", "waited: p50, p95, p99, max", "late", "changes", "started")
_FIGURES: Final = range(2, len(_HEADER))


class Comparison(NamedTuple):
    """One load, run by both."""

    trace: Trace
    settings: Settings
    policy: Run
    clairvoyant: Run

    @property
    def wasted(self) -> float:
        """How many times as much the policy wasted."""
        return _ratio(self.policy.wasted_s, self.clairvoyant.wasted_s)

    @property
    def total(self) -> float:
        """How many times as many pod-seconds the policy took."""
        return _ratio(self.policy.pod_s, self.clairvoyant.pod_s)

    @property
    def is_met(self) -> bool:
        return self.wasted <= BAR


class Waits(NamedTuple):
    """How long tasks waited until they began."""

    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    late: int
    """Tasks that began after their target."""
    late_by_s: float
    """The worst of them."""


def waits(run: Run, target_s: float) -> Waits:
    """Percentiles of the nearest rank."""
    ordered = sorted(run.waited_s) or [0.0]
    p50_s, p95_s, p99_s = (ordered[math.ceil(len(ordered) * share) - 1] for share in (0.5, 0.95, 0.99))
    late = sum(waited_s > target_s for waited_s in ordered)
    return Waits(p50_s, p95_s, p99_s, ordered[-1], late, max(0.0, ordered[-1] - target_s))


def screen(comparisons: Sequence[Comparison]) -> Table:
    """For a terminal."""
    shown = Table(title="The policy beside a clairvoyant")
    for index, title in enumerate(_HEADER):
        shown.add_column(title, justify="right" if index in _FIGURES else "left")
    for comparison in comparisons:
        for row in _rows(comparison):
            shown.add_row(*row)
        shown.add_section()
    return shown


def verdicts(loads: Iterable[Sequence[Comparison]]) -> list[str]:
    """A line per load: whether the bar is met."""
    return [
        f"{load[0].trace.name}: wasted {_spread(each.wasted for each in load)} the clairvoyant's (bar {BAR:g}: "
        f"{_met(load)}), {_spread(each.total for each in load)} its pod-seconds"
        for load in loads
    ]


def _met(load: Sequence[Comparison]) -> str:
    met = sum(each.is_met for each in load)
    if met in (0, len(load)):
        return "met" if met else "not met"
    return f"met with {met} of {len(load)} seeds"


def _spread(ratios: Iterable[float]) -> str:
    """The median of all seeds, and how far they lie apart."""
    ordered = sorted(ratios)
    middle = f"{statistics.median(ordered):.2f} ×"
    return middle if len(ordered) == 1 else f"{middle} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def markdown(by_seed: Sequence[Sequence[Comparison]], picture: str) -> str:
    """Everything between the markers of the page. By load, and then by seed, of which the first is told in full."""
    comparisons = [load[0] for load in by_seed]
    loads = table(
        ("load", "", "tasks", "wasted, policy to clairvoyant", f"bar: {BAR:g}", "pod-seconds, policy to clairvoyant"),
        (
            (
                load[0].trace.name,
                load[0].trace.about,
                f"{len(load[0].trace.tasks):,}",
                _spread(each.wasted for each in load),
                _met(load),
                _spread(each.total for each in load),
            )
            for load in by_seed
        ),
        right=range(2, 6),
    )
    figures = table(_HEADER, (row for each in comparisons for row in _rows(each)), right=_FIGURES)
    seeds = (
        f"The ratios are the median of {len(by_seed[0])} seeds, the least and the most; the picture and all other "
        "figures are of the first."
    )
    about = "*Changes* are those of the number of pods, and *started* are pods over the whole time."
    return "\n\n".join((loads, seeds, f"![Load and pods over time]({picture})", figures, about))


def _rows(comparison: Comparison) -> Iterable[tuple[str, ...]]:
    runs = (("policy", comparison.policy), ("clairvoyant", comparison.clairvoyant))
    for who, run in runs:
        waited = waits(run, comparison.settings.target_s)
        yield (
            comparison.trace.name if run is comparison.policy else "",
            who,
            f"{run.pod_s:,.0f}",
            f"{run.wasted_s:,.0f}",
            ", ".join(f"{each:.1f}" for each in waited[:4]) + " s",
            f"{waited.late:,} by ≤ {waited.late_by_s:.1f} s" if waited.late else "none",
            f"{len(run.changes):,}",
            f"{run.started:,}",
        )


def _ratio(upper: float, lower: float) -> float:
    if lower > 0:
        return upper / lower
    return 1.0 if upper == 0 else math.inf
