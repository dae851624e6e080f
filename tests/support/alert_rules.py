"""The chart's alerting rules, as Prometheus reads them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from typing import Any

import yaml

from tests.chart import programs
from tests.chart.helm import CHART, NAMESPACE, RELEASE
from tests.cluster import versions
from tests.cluster.process import run

VALUES = CHART / "values-alerts.yaml"

_RULES = "templates/monitoring/rules-configmap.yaml"
_TIMEOUT_S = 60.0


def alert_values() -> dict[str, Any]:
    """What values.yaml says of each alert, by its name there."""
    section = yaml.safe_load(VALUES.read_text())["alerts"]
    return {name: value for name, value in section.items() if isinstance(value, dict) and "severity" in value}


def rendered(values: Mapping[str, Any]) -> str:
    """The rules file that an installation with these values has."""
    command = [str(programs.helm_3()), "template", RELEASE, str(CHART), f"--namespace={NAMESPACE}"]
    command += [f"--show-only={_RULES}", f"--kube-version={versions.KUBERNETES}"]
    command += [f"--values={VALUES}", "--skip-schema-validation"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as changed:
        json.dump(values, changed)
        changed.flush()
        command += [f"--values={changed.name}", "--set=alerts.configMap.enabled=true"]
        config_map = yaml.safe_load(run(command, timeout_s=_TIMEOUT_S))
    (rules,) = config_map["data"].values()
    assert isinstance(rules, str)
    return rules


def alerts(rules: str) -> dict[str, dict[str, Any]]:
    """The alerts of a rules file by their name."""
    groups = yaml.safe_load(rules)["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] or ()}
