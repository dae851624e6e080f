"""A bar chart as SVG, written by hand: no package is needed for five rectangles per queue."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

PANELS = (("drain_1", "drain, 1 process"), ("drain_2", "drain, 2 processes"), ("bulk", "enqueue, bulk"))
_WIDTH, _LEFT, _RIGHT = 760, 130, 90
_BAR, _GAP, _HEAD = 16, 6, 34


def svg(peers: Sequence[dict[str, Any]], *, title: str) -> str:
    """One panel per measure, one bar per queue, all panels to the same scale."""
    rates = {measure: [(peer["title"], peer["name"], _rate(peer, measure)) for peer in peers] for measure, _ in PANELS}
    top = max((rate for rows in rates.values() for _, _, rate in rows), default=0.0) or 1.0
    panel = _HEAD + len(peers) * (_BAR + _GAP) + 10
    height = 30 + panel * len(PANELS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="bold" fill="#1f2933">{escape(title)}</text>',
    ]
    for index, (measure, label) in enumerate(PANELS):
        offset = 30 + index * panel
        parts.append(f'<text x="{_LEFT}" y="{offset + 22}" font-weight="bold" fill="#1f2933">{label}</text>')
        for row, (name, key, rate) in enumerate(rates[measure]):
            y = offset + _HEAD + row * (_BAR + _GAP)
            width = max(1.0, rate / top * (_WIDTH - _LEFT - _RIGHT))
            colour = "#1b7f79" if key == "headrace" else "#9aa5b1"
            middle = y + _BAR - 4
            figure = f"{rate:,.0f}" if rate else "–"
            parts += [
                f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end" fill="#3e4c59">{escape(name)}</text>',
                f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>',
                f'<text x="{_LEFT + width + 6:.1f}" y="{middle}" fill="#1f2933">{figure}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def _rate(peer: dict[str, Any], measure: str) -> float:
    return float(peer.get("figures", {}).get(measure, {}).get("per_s") or 0.0)
