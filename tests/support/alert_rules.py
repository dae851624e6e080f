"""The chart's alerting rules, as Prometheus reads them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.chart import programs
from tests.chart.helm import CHART, Helm, find


def alert_values() -> dict[str, Any]:
    """What values.yaml says of each alert, by its name there."""
    section = yaml.safe_load((CHART / "values.yaml").read_text())["alerts"]
    return {name: value for name, value in section.items() if isinstance(value, dict) and "severity" in value}


def rendered(values: Mapping[str, Any]) -> str:
    """The rules file that an installation with these values has."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as changed:
        json.dump(values, changed)
        changed.flush()
        found = Helm(programs.helm_3()).template(Path(changed.name), sets={"alerts.configMap.enabled": "true"})
    (rules,) = find(found, "ConfigMap", "headrace-rules")["data"].values()
    assert isinstance(rules, str)
    return rules


def alerts(rules: str) -> dict[str, dict[str, Any]]:
    """The alerts of a rules file by their name."""
    groups = yaml.safe_load(rules)["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] or ()}
