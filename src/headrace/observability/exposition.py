"""A worker's figures as Prometheus reads them.

prometheus_client is imported when somebody asks for them and not before: a worker that starts has no time for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .histogram import Histogram
from .probes import not_found, plain

if TYPE_CHECKING:
    from prometheus_client import Metric as Metric  # re-exported for those who make them

_MISSING = (
    b"This worker has no metrics, because prometheus-client is not installed. "
    b"Install it with: pip install 'headrace[metrics]'\n"
)


def answer(families: Callable[[], Iterable[Metric]]) -> bytes:
    """What ``GET /metrics`` is answered with."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
        from prometheus_client.registry import Collector
    except ImportError:
        return not_found(_MISSING)

    class Figures(Collector):
        def collect(self) -> Iterable[Metric]:
            return families()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return plain(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)


def histogram(
    name: str, told: str, own: Mapping[str, str], names: Sequence[str], counted: Histogram, shown: Callable[[str], str]
) -> Metric:
    """``own`` are the labels that all series share, ``names`` those of the others; ``shown`` names a queue."""
    from prometheus_client.core import HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    family = HistogramMetricFamily(name, told, labels=[*own, "queue", *names])
    bounds = [*map(floatToGoString, counted.bounds), "+Inf"]
    for (queue, *labels), counts, total in counted.read():
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family.add_metric([*own.values(), shown(queue), *labels], buckets, total)
    return family


def gauge(name: str, told: str, own: Mapping[str, str], value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, told, labels=list(own))
    family.add_metric(list(own.values()), value)
    return family


def counter(name: str, told: str, own: Mapping[str, str], value: float) -> Metric:
    """``name`` without its ``_total``."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, told, labels=list(own))
    family.add_metric(list(own.values()), value)
    return family
