"""Putting the rows where people read them: ``python -m tests.chaos.publish``.

Rows of drills that have not been run since are kept as they stand in the table.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.report import ROWS, Row, read_rows

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN = "<!-- drills: begin -->"
END = "<!-- drills: end -->"
_HEAD = (
    "| drill | fault | times | tasks | lost | settled twice | executed more than once | recovery p50 / p99 | took |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|",
)


def main() -> None:
    rows = read_rows(ROWS / "long")
    if not rows:
        print("No drill has run in its long form: there is nothing to publish.")
        return
    PAGE.write_text(merged(PAGE.read_text(), rows))
    print(f"{len(rows)} rows are in docs/{PAGE.name}.")


def merged(page: str, rows: list[Row]) -> str:
    """The page with these rows in its table, instead of those of the same drills."""
    before, begin, rest = page.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"drill: {PAGE.name} has no {BEGIN} … {END}")
    lines = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| `")}
    lines |= {f"`{row.drill}`": _line(row) for row in rows}
    return "\n".join([f"{before}{BEGIN}", "", *_HEAD, *(lines[drill] for drill in sorted(lines)), "", f"{END}{after}"])


def _line(row: Row) -> str:
    recovery = "–"
    if row.recovery_p99_s is not None:
        median = "–" if row.recovery_p50_s is None else f"{row.recovery_p50_s:.2f} s"
        recovery = f"{median} / {row.recovery_p99_s:.2f} s, {row.recovery}"
    took = f"{row.took_s / 60:.0f} min" if row.took_s >= 120 else f"{row.took_s:.0f} s"
    cells = (
        f"`{row.drill}`",
        row.fault,
        f"{row.times:,}",
        f"{row.tasks:,}",
        f"{row.lost:,}",
        f"{row.settled_twice:,}",
        f"{row.executed_again:,}",
        recovery,
        took,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
