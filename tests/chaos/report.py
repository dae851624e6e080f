"""A row per drill: what was broken how often, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.forms import FORM

ROWS = Path(__file__).parents[2] / "build" / "drills"


@dataclass(frozen=True, slots=True)
class Row:
    """What a drill found."""

    drill: str
    fault: str
    times: int
    tasks: int
    lost: int
    settled_twice: int
    executed_again: int
    recovery_p50_s: float | None
    recovery_p99_s: float | None
    recovery: str
    """From what to what the recovery was measured."""
    took_s: float

    def __str__(self) -> str:
        recovery = (
            ""
            if self.recovery_p50_s is None or self.recovery_p99_s is None
            else f", recovery p50 {self.recovery_p50_s:.2f} s / p99 {self.recovery_p99_s:.2f} s ({self.recovery})"
        )
        return (
            f"{self.drill}: {self.fault} x {self.times:,}: {self.tasks:,} tasks, {self.lost} lost, "
            f"{self.settled_twice} settled twice, {self.executed_again:,} executed more than once{recovery}, "
            f"took {self.took_s:.0f} s"
        )


def percentile(samples: Sequence[float], percent: int) -> float | None:
    """The nearest rank; None without samples."""
    if not samples:
        return None
    return sorted(samples)[max(0, -(-percent * len(samples) // 100) - 1)]


def write(row: Row) -> None:
    """Keep the row for ``make drill`` to publish. The short form is not kept: it runs with every test."""
    print(f"\n{row}", flush=True)
    if FORM == "short":
        return
    folder = ROWS / FORM
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{row.drill}.json").write_text(json.dumps(asdict(row), indent=1, ensure_ascii=False) + "\n")


def read_rows(folder: Path) -> list[Row]:
    """The rows of drills that ran."""
    return [Row(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
