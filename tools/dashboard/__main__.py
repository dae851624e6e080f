"""Writes the dashboard to where the chart has it."""

from __future__ import annotations

from pathlib import Path

from .grafana import text

PLACE = Path(__file__).parents[2] / "charts" / "headrace" / "dashboards" / "headrace.json"

if __name__ == "__main__":
    PLACE.write_text(text())
