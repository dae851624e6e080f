"""Queues, as Prometheus is told of them: the oldest one by one, all others added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .fold import OTHER, Fold
from .queue_figures import QUEUE_METRICS, SLOTS_USED, QueueReport, QueueView, count, report_on

_FOLDED: Final = "headrace_metrics_queues_folded"


class QueueMetrics(Collector):
    """Tells of what it was last shown. Used by one thread at a time."""

    def __init__(self, max_queues: int) -> None:
        self._max_queues = max_queues
        self._views: Sequence[QueueView] | None = None
        self._folds: dict[str, Fold] = {}
        """By namespace."""

    def show(self, views: Sequence[QueueView] | None) -> None:
        """All TaskQueues there are; None for a replica that does not lead, which knows of none."""
        self._views = views
        if views is None:
            self._folds.clear()

    def collect(self) -> Iterable[Metric]:
        """One family for each metric."""
        if self._views is None:
            return []
        # By age, whatever is known of them: no queue loses or gains its series because of how another one is doing.
        by_age = sorted(self._views, key=lambda view: (view.created_at, view.namespace, view.name))
        own, folded = by_age[: self._max_queues], by_age[self._max_queues :]
        families = _Families()
        for view in own:
            report = report_on(view)
            if view.pulse is not None:
                report.counters = count(view.pulse.counters)
            families.add(view.namespace, view.name, report)
        for namespace, report in self._folded(folded):
            families.add(namespace, OTHER, report)
        number = GaugeMetricFamily(_FOLDED, "Queues that have no series of their own", len(folded))
        return [*families.filled(), number]

    def _folded(self, views: Iterable[QueueView]) -> Iterable[tuple[str, QueueReport]]:
        by_namespace: dict[str, list[QueueView]] = defaultdict(list)
        for view in views:
            by_namespace[view.namespace].append(view)
        for namespace in self._folds.keys() - by_namespace.keys():
            del self._folds[namespace]
        for namespace, some in by_namespace.items():
            yield namespace, self._folds.setdefault(namespace, Fold()).add_up(some)


class _Families:
    """The families of all metrics of queues, being filled."""

    def __init__(self) -> None:
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            metric.name: (CounterMetricFamily if metric.is_counter else GaugeMetricFamily)(
                metric.name, metric.help, labels=("namespace", "queue", *metric.labels)
            )
            for metric in QUEUE_METRICS.values()
        }

    def add(self, namespace: str, queue: str, report: QueueReport) -> None:
        for values in (report.gauges, report.counters):
            for key, value in values.items():
                self._families[key[0]].add_metric((namespace, queue, *key[1:]), value)
        ratio = report.slots_used_ratio
        if ratio is not None:
            self._families[SLOTS_USED].add_metric((namespace, queue), ratio)

    def filled(self) -> list[Metric]:
        return list(self._families.values())
