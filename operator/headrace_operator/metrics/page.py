"""The page that Prometheus reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .pools import PoolMetrics
from .queue_figures import QueueView
from .queues import QueueMetrics


class MetricsPage:
    """All that this replica tells.

    It is written by a thread of its own: with many queues that takes longer than the operator's loop should stand
    still. One thread, so that a page is written after the other, however many ask.
    """

    def __init__(self, is_leader: Callable[[], bool], max_queues: int) -> None:
        # It would be another series for each counter, and docs/metrics.md has none.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(_Leadership(is_leader))
        self._queues = QueueMetrics(max_queues)
        self._registry.register(self._queues)
        self.pools = PoolMetrics(self._registry)
        self._look: Callable[[], Sequence[QueueView]] | None = None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics")

    def lead(self, look: Callable[[], Sequence[QueueView]]) -> None:
        """This replica leads now; ``look`` tells how its queues are."""
        self._look = look

    def follow(self) -> None:
        """Another replica leads, and tells."""
        self._look = None
        self.pools.forget_all()

    async def text(self) -> bytes:
        """As Prometheus reads it."""
        # What is shown cannot change any more, so the thread may take its time.
        views = None if self._look is None else self._look()
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, views)

    def close(self) -> None:
        self._writer.shutdown(wait=False, cancel_futures=True)

    def _write(self, views: Sequence[QueueView] | None) -> bytes:
        self._queues.show(views)
        return generate_latest(self._registry)


class _Leadership(Collector):
    def __init__(self, is_leader: Callable[[], bool]) -> None:
        self._is_leader = is_leader

    def collect(self) -> Iterable[Metric]:
        value = float(self._is_leader())
        yield GaugeMetricFamily("headrace_operator_leader", "1 for the replica that leads, 0 for the others", value)
