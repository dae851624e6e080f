"""Counting without locks, for what happens many thousand times a second.

One thread writes, any thread may read. That takes no lock: the writer changes one number at a time, and a reader copies
a list or a dict in one step of the interpreter. What it reads may lack the sum of the very last observation, never a
number that was there before.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

Labels: TypeAlias = tuple[str, ...]


class Histogram:
    """How many values fell between which bounds, for each combination of labels."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._series: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Count ``value``; one thread only."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = [0] * (len(self.bounds) + 2)
        # A bound belongs to the values below it.
        series[bisect_left(self.bounds, value)] += 1
        series[-1] += value

    def read(self) -> list[tuple[Labels, list[float], float]]:
        """Labels, how many values there are between each two bounds (the last: above all), and the sum of all."""
        copies = [(labels, series.copy()) for labels, series in list(self._series.items())]
        return [(labels, series[:-1], series[-1]) for labels, series in copies]
