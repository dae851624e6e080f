"""What docs/metrics.md promises: each metric with its type and its labels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

_ROW = re.compile(r"^\| `(headrace_\w+)` \| (\w+) \| ([\w, ]*?) ?\|", re.MULTILINE)
_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")
# What a scraper gives to series that do not say it themselves.
_OF_THE_TARGET = ("namespace",)
# Strings may hold anything, braces too.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class Metric:
    """A row of the page."""

    name: str
    type: str
    labels: tuple[str, ...]


@cache
def documented() -> dict[str, Metric]:
    """All metrics of the page by their name."""
    found = {}
    for name, type, labels in _ROW.findall(PAGE.read_text()):
        found[name] = Metric(name, type, tuple(re.findall(r"\w+", labels)))
    assert found, f"{PAGE} has no table of metrics"
    return found


def metric_of(series: str) -> Metric | None:
    """The metric that a series belongs to; a histogram has three kinds of them."""
    page = documented()
    for suffix in _OF_A_HISTOGRAM:
        metric = page.get(series.removesuffix(suffix))
        if series.endswith(suffix) and metric is not None and metric.type == "histogram":
            return metric
    return page.get(series)


def misuses(query: str) -> list[str]:
    """What a query asks for and the page does not have, each in one sentence."""
    bare = _STRING.sub('""', query)
    metrics = {series: metric_of(series) for series in re.findall(r"\bheadrace_\w+", bare)}
    wrong = [f"docs/metrics.md has no {series}" for series, metric in metrics.items() if metric is None]
    for series, matchers in re.findall(r"\b(headrace_\w+)\{([^}]*)\}", bare):
        there = _labels(metrics[series])
        wrong += [
            f"{series} has no label {label}" for label in re.findall(r"(\w+)\s*[=!]", matchers) if label not in there
        ]
    anywhere = {label for metric in metrics.values() for label in _labels(metric)}
    for labels in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", bare):
        wrong += [f"nothing here has a label {label}" for label in re.findall(r"\w+", labels) if label not in anywhere]
    return wrong


def _labels(metric: Metric | None) -> set[str]:
    """What its series can be told apart by."""
    if metric is None:
        return set()
    return {*metric.labels, *_OF_THE_TARGET, *(("le",) if metric.type == "histogram" else ())}
