"""The figures of a comparison, for the screen and for the page."""

from __future__ import annotations

import math
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


def verdicts(comparisons: Iterable[Comparison]) -> list[str]:
    """A line per load: whether the bar is met."""
    return [
        f"{each.trace.name}: wasted {each.wasted:.2f} × the clairvoyant's (bar {BAR:g}: "
        f"{'met' if each.is_met else 'not met'}), {each.total:.2f} × its pod-seconds"
        for each in comparisons
    ]


def markdown(comparisons: Sequence[Comparison], picture: str) -> str:
    """Everything between the markers of the page."""
    loads = table(
        ("load", "", "tasks", "wasted, policy to clairvoyant", f"bar: {BAR:g}", "pod-seconds, policy to clairvoyant"),
        (
            (
                each.trace.name,
                each.trace.about,
                f"{len(each.trace.tasks):,}",
                f"{each.wasted:.2f} ×",
                "met" if each.is_met else "not met",
                f"{each.total:.2f} ×",
            )
            for each in comparisons
        ),
        right=range(2, 6),
    )
    figures = table(_HEADER, (row for each in comparisons for row in _rows(each)), right=_FIGURES)
    about = "*Changes* are those of the number of pods, and *started* are pods over the whole time."
    return "\n\n".join((loads, f"![Load and pods over time]({picture})", figures, about))


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
