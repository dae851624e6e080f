"""Putting the results where people read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import chart, tables

BEGIN = "<!-- bench: begin -->"
END = "<!-- bench: end -->"


def write_json(results: dict[str, Any], path: Path) -> None:
    """Everything, every round included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def write_page(results: dict[str, Any], page: Path) -> None:
    """Replace what is between the markers of a page, and the chart beside it."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"bench: {page.name} has no {BEGIN} … {END}")
    picture = page.with_suffix(".svg")
    if results["passes"]:
        first = results["passes"][0]
        picture.write_text(chart.svg(first["peers"], title="Tasks per second, higher is better"))
    body = tables.document(results, chart=picture.name)
    page.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}")
