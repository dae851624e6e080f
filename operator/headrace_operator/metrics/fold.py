"""Many queues told of as one, so that the number of series has a bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.model.config import MAX_LEVELS
from headrace.model.figures import QueueCounters

from .queue_figures import QUEUE_METRICS, Key, QueueReport, QueueView, count, report_on

OTHER: Final = "(other)"
"""In place of a queue's name, and of a level's that is one too many. No name has parentheses."""


class Fold:
    """The queues of one namespace that have no series of their own.

    Of gauges there is the sum, the highest or the lowest. A counter begins with 0 and grows by what has been counted in
    any of the queues since it was first seen: so neither a queue that comes, goes or cannot be reached nor a Redis that
    has lost its data makes it jump or fall.
    """

    def __init__(self) -> None:
        self._totals: dict[Key, int] = {}
        self._seen: dict[str, QueueCounters] = {}
        """What each queue had counted when it was last seen."""
        self._levels: set[str] = set()

    def add_up(self, views: Iterable[QueueView]) -> QueueReport:
        """What to tell of these, which are all of the namespace that are folded."""
        whole = QueueReport(counters=self._totals)
        names = set()
        for view in views:
            names.add(view.name)
            self._add_gauges(whole, report_on(view))
            # Most have not counted anything since.
            if view.pulse is not None and self._seen.get(view.name) != view.pulse.counters:
                self._count(view.name, view.pulse.counters)
        for name in self._seen.keys() - names:
            del self._seen[name]
        return whole

    def _add_gauges(self, whole: QueueReport, report: QueueReport) -> None:
        for key, value in report.gauges.items():
            common = self._without_rare_levels(key)
            before = whole.gauges.get(common)
            of_many = QUEUE_METRICS[key[0]].of_many
            if before is None:
                whole.gauges[common] = value
            elif of_many == "sum":
                whole.gauges[common] = before + value
            else:
                whole.gauges[common] = max(before, value) if of_many == "highest" else min(before, value)
        whole.slots += report.slots
        whole.slots_used += report.slots_used

    def _count(self, queue: str, counters: QueueCounters) -> None:
        before = count(self._seen.get(queue, counters))
        for key, value in count(counters).items():
            known = before.get(key, 0)
            # A counter that fell began anew.
            grown = value - known if value >= known else value
            common = self._without_rare_levels(key)
            self._totals[common] = self._totals.get(common, 0) + grown
        self._seen[queue] = counters

    def _without_rare_levels(self, key: Key) -> Key:
        """A namespace can have any number of levels, as each queue names its own."""
        levels = QUEUE_METRICS[key[0]].levels
        if all(name in self._levels for name in key[1 : 1 + levels]):
            return key
        return (key[0], *map(self._level, key[1 : 1 + levels]), *key[1 + levels :])

    def _level(self, name: str) -> str:
        if name not in self._levels:
            if len(self._levels) >= MAX_LEVELS:
                return OTHER
            self._levels.add(name)
        return name
