"""The table keeps what was not run again."""

from __future__ import annotations

from tests.chaos.publish import PAGE, merged
from tests.chaos.report import Row, percentile


def _row(drill: str, tasks: int, p50_s: float | None = None) -> Row:
    return Row(drill, "a fault", 1000, tasks, 0, 0, 12, p50_s, p50_s and p50_s * 2, "from here to there", 1500.0)


def test_new_rows_replace_those_of_the_same_drill_only() -> None:
    page = merged(PAGE.read_text(), [_row("worker_kill", 1_000_000, 3.0), _row("poison", 100)])
    page = merged(page, [_row("worker_kill", 2_000_000, 3.5)])
    table = page.partition("<!-- drills: begin -->")[2].partition("<!-- drills: end -->")[0]
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| `")}
    assert {"`worker_kill`", "`poison`"} <= rows.keys()
    assert "2,000,000" in rows["`worker_kill`"]
    assert "3.50 s / 7.00 s" in rows["`worker_kill`"]
    assert "25 min" in rows["`worker_kill`"]
    assert "No run" not in table
    assert page.startswith(PAGE.read_text().partition("<!-- drills: begin -->")[0])
    assert page.endswith(PAGE.read_text().partition("<!-- drills: end -->")[2])


def test_percentiles_are_ranks() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert (percentile(samples, 50), percentile(samples, 99), percentile([], 50)) == (50.0, 99.0, None)
