"""Counting without locks, for what happens many thousand times a second.

One thread writes, any thread may read. That takes no lock: the writer changes one number at a time, and a reader copies
a list or a dict in one step of the interpreter. What it reads may have the sum of the very last observations without
their number or the other way round, but never less than what was there before.

What happens in batches is counted in batches: sorting them takes less time than finding a place for each value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeAlias

Labels: TypeAlias = tuple[str, ...]

_BATCH = 16
"""From so many values on it pays to sort them."""


class Histogram:
    """How many values fell between which bounds, for each combination of labels."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._series: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Count ``value``; one thread only."""
        series = self._of(labels)
        # A bound belongs to the values below it.
        series[bisect_left(self.bounds, value)] += 1
        series[-1] += value

    def observe_all(self, labels: Labels, values: list[float]) -> None:
        """Count all of ``values``, which are sorted in passing; one thread only."""
        if len(values) < _BATCH:
            for value in values:
                self.observe(labels, value)
            return
        series = self._of(labels)
        values.sort()
        counted = 0
        for index, bound in enumerate(self.bounds):
            up_to = bisect_right(values, bound, counted)
            if up_to > counted:
                series[index] += up_to - counted
                counted = up_to
                if counted == len(values):
                    break
        series[-2] += len(values) - counted
        series[-1] += sum(values)

    def _of(self, labels: Labels) -> list[float]:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = [0] * (len(self.bounds) + 2)
        return series

    def read(self) -> list[tuple[Labels, list[float], float]]:
        """Labels, how many values there are between each two bounds (the last: above all), and the sum of all."""
        copies = [(labels, series.copy()) for labels, series in list(self._series.items())]
        return [(labels, series[:-1], series[-1]) for labels, series in copies]
