"""A dashboard's JSON as panels with their figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.dashboard.prometheus import Prometheus, Series

KINDS: Final = ("row", "stat", "timeseries")
_STEPS: Final = 240
_SHORTEST_STEP_S: Final = 1.0
_SCRAPES_PER_RATE: Final = 4


@dataclass(frozen=True)
class Span:
    """The time that a picture shows."""

    begin_s: float
    end_s: float
    scrape_s: float

    @property
    def step_s(self) -> float:
        """How far apart its points are."""
        return max((self.end_s - self.begin_s) / _STEPS, self.scrape_s, _SHORTEST_STEP_S)

    @property
    def rate_interval_s(self) -> float:
        """What ``$__rate_interval`` stands for: as in Grafana, never less than four scrapes."""
        return max(self.step_s + self.scrape_s, _SCRAPES_PER_RATE * self.scrape_s)


@dataclass(frozen=True)
class Line:
    """One line of a panel, with its name in the legend."""

    name: str
    series: Series


@dataclass(frozen=True)
class Panel:
    """One panel, with all that is to be drawn."""

    kind: str
    title: str
    x: int
    y: int
    width: int
    height: int
    unit: str
    lines: tuple[Line, ...]
    is_stacked: bool
    has_bars: bool
    right: str | None
    """The name of the line that has an axis of its own."""
    bad_from: float | None


def panels(
    dashboard: Mapping[str, Any], prometheus: Prometheus, span: Span, variables: Mapping[str, str]
) -> list[Panel]:
    """Every panel of the dashboard, with what Prometheus answers to its queries."""
    return [_panel(raw, prometheus, span, variables) for raw in dashboard["panels"]]


def queries(dashboard: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The title of a panel and one of its queries, as they stand in the dashboard."""
    for raw in dashboard["panels"]:
        for target in raw.get("targets", ()):
            yield raw["title"], target["expr"]


def substituted(text: str, variables: Mapping[str, str], rate_interval_s: float) -> str:
    """A text of the dashboard with its variables' values."""
    known = {**variables, "__rate_interval": f"{rate_interval_s * 1000:.0f}ms"}

    def value(found: re.Match[str]) -> str:
        name = found["braced"] or found["bare"]
        if name not in known:
            raise KeyError(f"the dashboard has a variable {name}; say what it stands for: --variable {name}=…")
        return known[name]

    return re.sub(r"\$\{(?P<braced>\w+)\}|\$(?P<bare>\w+)", value, text)


def _panel(raw: Mapping[str, Any], prometheus: Prometheus, span: Span, variables: Mapping[str, str]) -> Panel:
    if raw["type"] not in KINDS:
        raise ValueError(f"panel {raw['title']!r}: cannot draw a {raw['type']}, only {', '.join(KINDS)}")
    lines: list[Line] = []
    for target in raw.get("targets", ()):
        query = substituted(target["expr"], variables, span.rate_interval_s)
        if raw["type"] == "stat":
            found = prometheus.now(query, span.end_s)
        else:
            found = prometheus.over(query, span.begin_s, span.end_s, span.step_s)
        lines += [Line(_legend(target["legendFormat"], series.labels), series) for series in found]
    defaults = raw.get("fieldConfig", {}).get("defaults", {})
    custom = defaults.get("custom", {})
    place = raw["gridPos"]
    return Panel(
        kind=raw["type"],
        title=substituted(raw["title"], variables, span.rate_interval_s),
        x=place["x"],
        y=place["y"],
        width=place["w"],
        height=place["h"],
        unit=defaults.get("unit", "short"),
        lines=tuple(sorted((line for line in lines if line.series.points), key=lambda line: line.name)),
        is_stacked=custom.get("stacking", {}).get("mode") == "normal",
        has_bars=custom.get("drawStyle") == "bars",
        right=_right(raw),
        bad_from=_bad_from(defaults),
    )


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), template)


def _right(raw: Mapping[str, Any]) -> str | None:
    for override in raw.get("fieldConfig", {}).get("overrides", ()):
        if {"id": "custom.axisPlacement", "value": "right"} in override["properties"]:
            return str(override["matcher"]["options"])
    return None


def _bad_from(defaults: Mapping[str, Any]) -> float | None:
    reds = [step["value"] for step in defaults.get("thresholds", {}).get("steps", ()) if step["color"] == "red"]
    return float(reds[0]) if reds else None
