"""Load and pods over time, a panel for each load, as SVG written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from benchmarks.scaling.model import SAMPLE_S, Run
from benchmarks.scaling.report import Comparison

_WIDTH, _LEFT, _RIGHT = 960, 48, 16
_PLOT, _HEAD, _FOOT, _TOP = 170, 34, 30, 56
_ACROSS: Final = _WIDTH - _LEFT - _RIGHT
_LONGEST_S: Final = {"bursts": 2 * 3600.0}
"""Of a whole day of bursts nothing could be made out."""

_INK, _FAINT, _GRID = "#1f2933", "#52606d", "#e4e7eb"
_LOAD, _POLICY, _CLAIRVOYANT = "#cbd2d9", "#1b7f79", "#c2570c"


def svg(comparisons: Sequence[Comparison]) -> str:
    """All panels, one below the other, each with its own scales."""
    height = _TOP + len(comparisons) * (_HEAD + _PLOT + _FOOT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="bold" fill="{_INK}">Pods over time</text>',
        *_legend(),
    ]
    for index, comparison in enumerate(comparisons):
        parts += _panel(comparison, _TOP + index * (_HEAD + _PLOT + _FOOT))
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> Iterable[str]:
    keys = (
        (f'<rect x="12" y="32" width="22" height="10" fill="{_LOAD}"/>', 40, "busy slots ÷ concurrency"),
        (_line(((210, 37), (232, 37)), _POLICY, 2.0), 238, "pods of the policy"),
        (_line(((370, 37), (392, 37)), _CLAIRVOYANT, 1.5), 398, "pods of the clairvoyant"),
    )
    for mark, x, words in keys:
        yield mark
        yield f'<text x="{x}" y="41" fill="{_INK}">{words}</text>'


def _panel(comparison: Comparison, top: int) -> Iterable[str]:
    runs = (comparison.policy, comparison.clairvoyant)
    whole_s = max((run.changes[-1][0] for run in runs if run.changes), default=1.0)
    span_s = min(whole_s, _LONGEST_S.get(comparison.trace.name, math.inf))
    pods = [[(at_s, number) for at_s, number in run.changes if at_s <= span_s] for run in runs]
    most = max((number for steps in pods for _, number in steps), default=1) or 1
    step = _nice(most / 4)
    highest = math.ceil(most / step) * step
    y0 = top + _HEAD + _PLOT

    def x_of(at_s: float) -> float:
        return _LEFT + at_s / span_s * _ACROSS

    def y_of(number: float) -> float:
        return y0 - number / highest * _PLOT

    part = "" if span_s == whole_s else f"; the first {span_s / 3600:g} h are shown"
    title = f"{escape(comparison.trace.name)}</tspan>: {escape(comparison.trace.about)}{part}"
    yield f'<text x="{_LEFT}" y="{top + 22}" fill="{_INK}"><tspan font-weight="bold">{title}</text>'
    for number in range(0, highest + 1, step):
        yield f'<path d="M{_LEFT} {y_of(number):.1f}H{_LEFT + _ACROSS}" stroke="{_GRID}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y_of(number) + 4:.1f}" text-anchor="end" fill="{_FAINT}">{number}</text>'
    tick_s, unit_s, unit = _ticks(span_s)
    for index in range(int(span_s // tick_s) + 1):
        at_s = index * tick_s
        label = f"{at_s / unit_s:g}{' ' + unit if index == 0 else ''}"
        yield f'<text x="{x_of(at_s):.1f}" y="{y0 + 17}" text-anchor="middle" fill="{_FAINT}">{label}</text>'
    yield _area(comparison.policy, comparison.settings.concurrency, span_s, x_of(0), y0, highest)
    for steps, colour, width in ((pods[0], _POLICY, 2.0), (pods[1], _CLAIRVOYANT, 1.5)):
        points, number = [(x_of(0), y_of(0))], 0
        for at_s, after in [*steps, (span_s, steps[-1][1] if steps else 0)]:
            points += [(x_of(at_s), y_of(number)), (x_of(at_s), y_of(after))]
            number = after
        yield _line(points, colour, width)


def _area(run: Run, concurrency: int, span_s: float, x0: float, y0: float, highest: int) -> str:
    """The load as the policy's slots had it: a mean for each pixel, or a sample where there are fewer of those."""
    samples = run.executing[: int(span_s // SAMPLE_S) + 1]
    columns = min(_ACROSS, len(samples))
    points = [f"M{x0:.1f} {y0}"]
    for column in range(columns):
        begin, end = column * len(samples) // columns, (column + 1) * len(samples) // columns
        load = sum(samples[begin:end]) / (end - begin) / concurrency
        points.append(f"L{x0 + (column + 0.5) / columns * _ACROSS:.1f} {y0 - load / highest * _PLOT:.1f}")
    return f'<path d="{"".join(points)}L{x0 + _ACROSS:.1f} {y0}Z" fill="{_LOAD}"/>'


def _line(points: Iterable[tuple[float, float]], colour: str, width: float) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" stroke-linejoin="round"/>'


def _nice(step: float) -> int:
    """The next of 1, 2, 5, 10, 20, ..."""
    power = int(10 ** math.floor(math.log10(max(step, 1.0))))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)


def _ticks(span_s: float) -> tuple[float, float, str]:
    """How far apart the ticks are, and in which unit they are told."""
    if span_s > 4 * 3600 + 1800:
        return math.ceil(span_s / 3600 / 12) * 3600.0, 3600.0, "h"
    return math.ceil(span_s / 60 / 12 / 10) * 600.0, 60.0, "min"
