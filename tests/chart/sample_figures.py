"""Every metric of docs/metrics.md with every label it has, as an operator and its workers would tell of them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tests.support.metrics_page import Metric, documented

NAMESPACE, QUEUES, POOL = "shop", ("orders", "mails"), "workers"
VALUES: dict[str, Sequence[str]] = {
    "namespace": (NAMESPACE,),
    "queue": QUEUES,
    "pool": (POOL,),
    "priority": ("high", "medium", "low"),
    "task": ("charge", "send"),
    "from": ("low",),
    "to": ("medium",),
    "state": ("desired", "ready", "busy", "idle", "draining"),
    "reason": ("Backlog", "Idle"),
}
STATUSES: dict[str, Sequence[str]] = {
    "headrace_task_state_total": ("queued", "delayed", "executing", "dead_letter", "finished"),
    "headrace_workers_total": ("active", "draining", "dead"),
    "headrace_task_duration_seconds": ("completed", "failed"),
}


class SampleFigures:
    """Figures that change with time, so that there is something to see."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._began_s = time.monotonic()
        self._figures = {name: _figure(metric, self._registry) for name, metric in documented().items()}
        self._read_at_s = self._began_s

    def page(self) -> bytes:
        """As an endpoint would answer now."""
        now_s = time.monotonic()
        for name, figure in self._figures.items():
            for number, labels in enumerate(_combinations(documented()[name])):
                child = figure.labels(*labels) if labels else figure
                if isinstance(child, Gauge):
                    child.set(1 + number + math.sin(now_s - self._began_s + number))
                elif isinstance(child, Counter):
                    child.inc((number + 1) * (now_s - self._read_at_s))
                else:
                    child.observe(0.01 * 2**number)
        self._read_at_s = now_s
        return generate_latest(self._registry)


def _figure(metric: Metric, registry: CollectorRegistry) -> Gauge | Counter | Histogram:
    kinds = {"gauge": Gauge, "counter": Counter, "histogram": Histogram}
    return kinds[metric.type](metric.name, "About it.", metric.labels, registry=registry)


def _combinations(metric: Metric) -> Iterator[tuple[str, ...]]:
    found = [STATUSES[metric.name] if label == "status" else VALUES[label] for label in metric.labels]
    return itertools.product(*found)
