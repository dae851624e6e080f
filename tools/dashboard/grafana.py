"""The panels as the JSON that Grafana imports, each in its place."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from .panels import ROWS, Panel

UID: Final = "headrace"
_SCHEMA_VERSION: Final = 41
_COLUMNS: Final = 24
_ROW_HEIGHT: Final = 1
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": UID,
        "title": "Headrace",
        "description": "Queues, and one pool in detail.",
        "tags": ["headrace"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [],
        "annotations": {"list": []},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def _variables() -> Iterable[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    yield _variable("namespace", "label_values(headrace_queue_backend_reachable, namespace)")
    yield _variable("queue", 'label_values(headrace_queue_backend_reachable{namespace=~"$namespace"}, queue)')
    yield _variable("pool", 'label_values(headrace_pool_pods{namespace=~"$namespace"}, pool)', several=False)


def _variable(name: str, query: str, *, several: bool = True) -> dict[str, Any]:
    """A choice of a label's values; of several ones, all at first."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"{name}-values"},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        **({"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}} if several else {}),
    }


def _panels() -> Iterable[dict[str, Any]]:
    """All rows and panels, from left to right and downward; each line of panels is as high as its first."""
    number, top = 0, 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": _ROW_HEIGHT},
        }
        top += _ROW_HEIGHT
        left, height = 0, 0
        for panel in panels:
            number += 1
            if left + panel.width > _COLUMNS:
                left, top = 0, top + height
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            left, height = left + panel.width, panel.height
        top += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "editorMode": "code",
                "expr": query,
                "legendFormat": legend,
                "range": panel.kind == "timeseries",
                "instant": panel.kind == "stat",
            }
            for index, (legend, query) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }


def _field(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if panel.bad_from is not None:
            steps.append({"color": "red", "value": panel.bad_from})
        return {"unit": panel.unit, "noValue": "–", "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "palette-classic"},
        "custom": {
            "drawStyle": "bars" if panel.style == "bars" else "line",
            "lineWidth": 1,
            "fillOpacity": 10 if panel.style == "line" else 40,
            "showPoints": "never",
            "stacking": {"group": "A", "mode": "none" if panel.style == "line" else "normal"},
        },
    }


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    if panel.right is None:
        return []
    properties = [{"id": "custom.axisPlacement", "value": "right"}, {"id": "custom.fillOpacity", "value": 0}]
    return [{"matcher": {"id": "byName", "options": panel.right}, "properties": properties}]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
