"""How pools follow their load. Only the leader has something to tell; others tell of no pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_POOL = ("namespace", "pool")
_REACTION_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_Metric = TypeVar("_Metric", Gauge, Counter, Histogram)


class PoolMetrics:
    """Written by those who look after pools."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pods = Gauge(
            "headrace_pool_pods",
            "Worker pods by state: desired, ready, busy, idle, draining",
            (*_POOL, "state"),
            registry=registry,
        )
        self._backlog = Gauge("headrace_pool_backlog", "Tasks that wait for this pool", _POOL, registry=registry)
        self._limited = Gauge(
            "headrace_pool_limited",
            "1 while there cannot be as many pods as there should be, by the reason",
            (*_POOL, "reason"),
            registry=registry,
        )
        self._decisions = Counter(
            "headrace_scaling_decisions",
            "Changes of a pool's size, by the reason of the decision",
            (*_POOL, "reason"),
            registry=registry,
        )
        self._reaction = Histogram(
            "headrace_scaling_reaction_seconds",
            "From the moment at which a queue's bell was heard to the end of the request that added pods",
            _POOL,
            buckets=_REACTION_BUCKETS_S,
            registry=registry,
        )
        self._refused = Counter(
            "headrace_drains_refused",
            "Workers that looked idle and had a task when they were asked to drain",
            _POOL,
            registry=registry,
        )
        self._told: dict[tuple[str, str], set[tuple[Gauge | Counter | Histogram, tuple[str, ...]]]] = {}
        """Every series of each pool: what has to go with it."""
        self._limits: dict[tuple[str, str], str] = {}
        """The reason for which each pool was last limited."""

    def show(self, namespace: str, pool: str, pods: Mapping[str, int], limit: str | None) -> None:
        """How many pods there are, by state, and the reason if there cannot be as many as there should be."""
        for state, number in pods.items():
            self._series(self._pods, namespace, pool, state).set(number)
        former = self._limits.pop((namespace, pool), None)
        if former is not None:
            self._series(self._limited, namespace, pool, former).set(0)
        if limit is not None:
            self._limits[namespace, pool] = limit
            self._series(self._limited, namespace, pool, limit).set(1)

    def show_backlog(self, namespace: str, pool: str, tasks: float | None) -> None:
        """How many tasks wait for the pool; None while that is not known: then nothing is told."""
        if tasks is not None:
            self._series(self._backlog, namespace, pool).set(tasks)
        elif (self._backlog, (namespace, pool)) in self._told.get((namespace, pool), ()):
            self._told[namespace, pool].remove((self._backlog, (namespace, pool)))
            self._backlog.remove(namespace, pool)

    def decided(self, namespace: str, pool: str, reason: str, reaction_s: float | None) -> None:
        """A pool's size has been changed; ``reaction_s`` after a bell, if one rang."""
        self._series(self._decisions, namespace, pool, reason).inc()
        if reaction_s is not None:
            self._series(self._reaction, namespace, pool).observe(reaction_s)

    def refused(self, namespace: str, pool: str, drains: int) -> None:
        if drains:
            self._series(self._refused, namespace, pool).inc(drains)

    def forget(self, namespace: str, pool: str) -> None:
        """A pool that is gone has no figures."""
        for metric, labels in self._told.pop((namespace, pool), ()):
            metric.remove(*labels)
        self._limits.pop((namespace, pool), None)

    def forget_all(self) -> None:
        """Another replica leads, and tells."""
        for namespace, pool in list(self._told):
            self.forget(namespace, pool)

    def _series(self, metric: _Metric, namespace: str, pool: str, *labels: str) -> _Metric:
        self._told.setdefault((namespace, pool), set()).add((metric, (namespace, pool, *labels)))
        return metric.labels(namespace, pool, *labels)
