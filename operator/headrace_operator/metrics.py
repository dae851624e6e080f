"""What the operator counts, for Prometheus. Only the leader has something to tell; others tell of no pool."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_POOL = ("namespace", "pool")
_REACTION_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class PoolMetrics:
    """How pools follow their load."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._pods = Gauge(
            "headrace_pool_pods",
            "Worker pods by state: desired, ready, busy, idle, draining",
            (*_POOL, "state"),
            registry=self._registry,
        )
        self._decisions = Counter(
            "headrace_scaling_decisions",
            "Changes of a pool's size, by the reason of the decision",
            (*_POOL, "reason"),
            registry=self._registry,
        )
        self._reaction = Histogram(
            "headrace_scaling_reaction_seconds",
            "From the moment at which a queue's bell was heard to the end of the request that added pods",
            _POOL,
            buckets=_REACTION_BUCKETS_S,
            registry=self._registry,
        )
        self._refused = Counter(
            "headrace_drains_refused",
            "Workers that looked idle and had a task when they were asked to drain",
            _POOL,
            registry=self._registry,
        )
        self._known: dict[tuple[str, str], set[str]] = {}
        """The reasons that were counted of each pool."""

    def show(self, namespace: str, pool: str, pods: Mapping[str, int]) -> None:
        """How many pods there are, by state."""
        self._known.setdefault((namespace, pool), set())
        for state, number in pods.items():
            self._pods.labels(namespace, pool, state).set(number)

    def decided(self, namespace: str, pool: str, reason: str, reaction_s: float | None) -> None:
        """A pool's size has been changed; ``reaction_s`` after a bell, if one rang."""
        self._known.setdefault((namespace, pool), set()).add(reason)
        self._decisions.labels(namespace, pool, reason).inc()
        if reaction_s is not None:
            self._reaction.labels(namespace, pool).observe(reaction_s)

    def refused(self, namespace: str, pool: str, drains: int) -> None:
        if drains:
            self._refused.labels(namespace, pool).inc(drains)

    def forget(self, namespace: str, pool: str) -> None:
        """A pool that is gone has no figures."""
        reasons = self._known.pop((namespace, pool), None)
        if reasons is None:
            return
        for state in ("desired", "ready", "busy", "idle", "draining"):
            _remove(self._pods, namespace, pool, state)
        for reason in reasons:
            _remove(self._decisions, namespace, pool, reason)
        _remove(self._reaction, namespace, pool)
        _remove(self._refused, namespace, pool)

    def forget_all(self) -> None:
        """Another replica leads, and tells."""
        for namespace, pool in list(self._known):
            self.forget(namespace, pool)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)


def _remove(metric: Gauge | Counter | Histogram, *labels: str) -> None:
    try:
        metric.remove(*labels)
    except KeyError:
        return  # there never was such a figure
