"""Panels as SVG written by hand, each where it is in Grafana's grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from benchmarks.dashboard.panels import Line, Panel, Span
from benchmarks.dashboard.units import scale, shown

_COLUMN, _ROW, _GAP, _TOP = 52, 28, 8, 34
_COLUMNS: Final = 24
_LEFT, _RIGHT, _HEAD, _FOOT, _LEGEND_LINE = 46, 12, 26, 18, 15
_RIGHT_AXIS: Final = 40
_LEGEND_LINES: Final = 3
_CHARACTER: Final = 5.6
_TICKS_ACROSS: Final = 5

_INK, _FAINT, _GRID, _CARD, _PAGE = "#1f2933", "#52606d", "#e4e7eb", "#ffffff", "#f5f7fa"
_GOOD, _BAD = "#1b7f79", "#ba2525"
_COLOURS: Final = (
    *("#1b7f79", "#c2570c", "#2b6cb0", "#b7791f", "#6b46c1", "#97266d"),
    *("#4a5568", "#2f855a", "#9b2c2c", "#3182ce", "#805ad5", "#dd6b20"),
)


def svg(panels: Sequence[Panel], span: Span, *, title: str) -> str:
    """All panels on one page."""
    width = _COLUMNS * _COLUMN + _GAP
    height = _TOP + max((panel.y + panel.height for panel in panels), default=0) * _ROW + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="{_PAGE}"/>',
        f'<text x="12" y="23" font-size="15" font-weight="bold" fill="{_INK}">{escape(title)}</text>',
    ]
    for panel in panels:
        parts += _panel(panel, span)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, span: Span) -> Iterable[str]:
    x, y = panel.x * _COLUMN + _GAP, panel.y * _ROW + _TOP
    width, height = panel.width * _COLUMN - _GAP, panel.height * _ROW - _GAP
    if panel.kind == "row":
        style = f'font-size="13" font-weight="bold" fill="{_INK}"'
        yield f'<text x="{x + 4}" y="{y + 16}" {style}>{escape(panel.title)}</text>'
        return
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{_CARD}" stroke="{_GRID}"/>'
    yield f'<text x="{x + 10}" y="{y + 17}" font-weight="bold" fill="{_INK}">{escape(panel.title)}</text>'
    if panel.kind == "stat":
        yield _stat(panel, x + width / 2, y + height / 2 + 20)
    elif not panel.lines:
        yield f'<text x="{x + width / 2}" y="{y + height / 2}" text-anchor="middle" fill="{_FAINT}">no data</text>'
    else:
        yield from _Plot(panel, span, x, y, width, height).parts()


def _stat(panel: Panel, x: float, y: float) -> str:
    if not panel.lines:
        text, colour = "–", _FAINT
    else:
        value = panel.lines[0].series.points[-1][1]
        text = shown(value, panel.unit)
        colour = _BAD if panel.bad_from is not None and value >= panel.bad_from else _GOOD
    return f'<text x="{x}" y="{y}" font-size="26" text-anchor="middle" fill="{colour}">{escape(text)}</text>'


class _Plot:
    """One time series panel: axes, lines, legend."""

    def __init__(self, panel: Panel, span: Span, x: float, y: float, width: float, height: float) -> None:
        self.panel, self.span = panel, span
        self.legend = _legend_lines([line.name for line in panel.lines], width - 20)
        right = _RIGHT if panel.right is None else _RIGHT_AXIS
        self.x0, self.across = x + _LEFT, width - _LEFT - right
        self.y0 = y + height - _FOOT - len(self.legend) * _LEGEND_LINE
        self.up = self.y0 - y - _HEAD
        self.legend_x, self.legend_y = x + 10, y + height - len(self.legend) * _LEGEND_LINE + 6
        on_left = [line for line in panel.lines if line.name != panel.right]
        on_right = [line for line in panel.lines if line.name == panel.right]
        self.left_scale = scale(_highest(on_left, is_stacked=panel.is_stacked), 4)
        self.right_scale = scale(_highest(on_right, is_stacked=False), 4)

    def parts(self) -> Iterable[str]:
        yield from self._axes()
        below: dict[float, float] = {}
        for number, line in enumerate(self.panel.lines):
            colour = _COLOURS[number % len(_COLOURS)]
            if line.name == self.panel.right:
                yield from self._curve(line.series.points, colour, self.right_scale[-1], dashed=True)
            elif self.panel.has_bars:
                yield from self._bars(line, colour, below)
            elif self.panel.is_stacked:
                yield from self._layer(line, colour, below)
            else:
                yield from self._curve(line.series.points, colour, self.left_scale[-1])
        yield from self._legend()

    def _axes(self) -> Iterable[str]:
        for value in self.left_scale:
            y = self._y(value, self.left_scale[-1])
            text = escape(shown(value, self.panel.unit))
            yield f'<path d="M{self.x0:.1f} {y:.1f}h{self.across:.1f}" stroke="{_GRID}"/>'
            yield f'<text x="{self.x0 - 6:.1f}" y="{y + 4:.1f}" text-anchor="end" fill="{_FAINT}">{text}</text>'
        if self.panel.right is not None:
            for value in self.right_scale:
                y, x = self._y(value, self.right_scale[-1]) + 4, self.x0 + self.across + 6
                yield f'<text x="{x:.1f}" y="{y:.1f}" fill="{_FAINT}">{escape(shown(value, self.panel.unit))}</text>'
        span_s = self.span.end_s - self.span.begin_s
        for at_s in scale(span_s, _TICKS_ACROSS):
            if at_s <= span_s:
                x = self._x(self.span.begin_s + at_s)
                text = shown(at_s, "s")
                yield f'<text x="{x:.1f}" y="{self.y0 + 14:.1f}" text-anchor="middle" fill="{_FAINT}">{text}</text>'

    def _curve(
        self, points: Sequence[tuple[float, float]], colour: str, highest: float, *, dashed: bool = False
    ) -> Iterable[str]:
        dashes = ' stroke-dasharray="5 3"' if dashed else ""
        for part in _unbroken(points, self.span.step_s):
            path = "L".join(f"{self._x(at_s):.1f} {self._y(value, highest):.1f}" for at_s, value in part)
            yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linecap="round"{dashes}/>'

    def _layer(self, line: Line, colour: str, below: dict[float, float]) -> Iterable[str]:
        """A line on top of those before it, and the area between."""
        highest = self.left_scale[-1]
        for part in _unbroken(line.series.points, self.span.step_s):
            lower = [(at_s, below.get(at_s, 0.0)) for at_s, _ in part]
            upper = [(at_s, below.get(at_s, 0.0) + value) for at_s, value in part]
            around = [*upper, *reversed(lower)]
            path = "L".join(f"{self._x(at_s):.1f} {self._y(value, highest):.1f}" for at_s, value in around)
            yield f'<path d="M{path}Z" fill="{colour}" fill-opacity="0.3"/>'
            yield from self._curve(upper, colour, highest)
            below.update(upper)

    def _bars(self, line: Line, colour: str, below: dict[float, float]) -> Iterable[str]:
        highest = self.left_scale[-1]
        width = max(1.0, self.across * self.span.step_s / (self.span.end_s - self.span.begin_s) - 0.5)
        for at_s, value in line.series.points:
            if value > 0:
                foot, top = below.get(at_s, 0.0), below.get(at_s, 0.0) + value
                y, height = self._y(top, highest), self._y(foot, highest) - self._y(top, highest)
                x = self._x(at_s) - width / 2
                yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
                below[at_s] = top

    def _legend(self) -> Iterable[str]:
        for row, entries in enumerate(self.legend):
            for number, name, offset in entries:
                x, y = self.legend_x + offset, self.legend_y + row * _LEGEND_LINE
                colour = _COLOURS[number % len(_COLOURS)] if number >= 0 else _CARD
                yield f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="10" height="3" fill="{colour}"/>'
                yield f'<text x="{x + 14:.1f}" y="{y:.1f}" font-size="10" fill="{_INK}">{escape(name)}</text>'

    def _x(self, at_s: float) -> float:
        return self.x0 + (at_s - self.span.begin_s) / (self.span.end_s - self.span.begin_s) * self.across

    def _y(self, value: float, highest: float) -> float:
        return self.y0 - value / highest * self.up


def _highest(lines: Sequence[Line], *, is_stacked: bool) -> float:
    if not is_stacked:
        return max((value for line in lines for _, value in line.series.points), default=0.0)
    sums: dict[float, float] = {}
    for line in lines:
        for at_s, value in line.series.points:
            sums[at_s] = sums.get(at_s, 0.0) + value
    return max(sums.values(), default=0.0)


def _unbroken(points: Sequence[tuple[float, float]], step_s: float) -> Iterable[list[tuple[float, float]]]:
    """The points in parts: where some are missing, nothing is drawn."""
    part: list[tuple[float, float]] = []
    for at_s, value in points:
        if part and at_s - part[-1][0] > 1.5 * step_s:
            yield part
            part = []
        part.append((at_s, value))
    if part:
        yield part


def _legend_lines(names: Sequence[str], width: float) -> list[list[tuple[int, str, float]]]:
    """Which names stand in which line: number, text and offset; those for which there is no room are counted."""
    lines: list[list[tuple[int, str, float]]] = [[]]
    offset = 0.0
    for number, name in enumerate(names):
        needed = 28 + len(name) * _CHARACTER
        if offset and offset + needed > width:
            if len(lines) == _LEGEND_LINES:
                last_number, _, last_offset = lines[-1][-1]
                lines[-1][-1] = (-1, f"and {len(names) - last_number} more", last_offset)
                return lines
            lines.append([])
            offset = 0.0
        lines[-1].append((number, name, offset))
        offset += needed
    return lines
