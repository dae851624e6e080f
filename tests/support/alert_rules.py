"""The chart's alerting rules, as Prometheus reads them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries
from tests.cluster.process import run

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "headrace"
RELEASE, NAMESPACE = "headrace", "headrace-system"

_TIMEOUT_S = 60.0


def alert_values() -> dict[str, Any]:
    """What values.yaml says of each alert, by its name there."""
    section = yaml.safe_load((CHART / "values-alerts.yaml").read_text())["alerts"]
    return {name: value for name, value in section.items() if isinstance(value, dict) and "severity" in value}


def rendered(values: Mapping[str, Any], namespace: str = NAMESPACE) -> str:
    """The rules file that an installation with these values has."""
    with tempfile.TemporaryDirectory() as scratch:
        chart = Path(scratch) / "headrace"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: headrace\nversion: 0.0.0\n")
        shutil.copy(CHART / "values-alerts.yaml", chart / "values.yaml")
        shutil.copytree(CHART / "rules", chart / "rules")
        (chart / "templates" / "rules.yaml").write_text('{{ tpl (.Files.Get "rules/alerts.yaml") . }}\n')
        changed = Path(scratch) / "changed.json"
        changed.write_text(json.dumps(values))
        command = [helm(), "template", RELEASE, str(chart), f"--namespace={namespace}", f"--values={changed}"]
        return run(command, timeout_s=_TIMEOUT_S)


def alerts(rules: str) -> dict[str, dict[str, Any]]:
    """The alerts of a rules file by their name."""
    groups = yaml.safe_load(rules)["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] or ()}


def helm() -> str:
    """The program, from where the test cluster has it."""
    folder = binaries.all_programs() if binaries.all_programs_built() else binaries.tools()
    return str(folder / "helm")
