"""Rules and dashboards are files of the chart: what becomes of them, and that none of them is fine, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import MONITORING, Document, Helm, every, find
from tests.cluster.problem import ClusterProblem

pytestmark = pytest.mark.slow

RULES = """
groups:
  - name: headrace.queues
    rules:
      {{- if .Values.tests.enabled }}
      - alert: HeadraceQueueWaits
        expr: headrace_queue_oldest_age_seconds > {{ .Values.tests.timeoutSeconds }}
        annotations:
          summary: '{{ `{{ $labels.queue }}` }} waits for {{ "{{" }} $value }}'
      {{- end }}
  - name: headrace.empty
    rules: []
"""
DASHBOARD = {"title": "Headrace", "panels": [{"legendFormat": "{{queue}}", "expr": 'up{job="$job"}'}]}
ON = {"alerts.configMap.enabled": "true"}


@pytest.fixture
def bare(helm: Helm, tmp_path: Path) -> Helm:
    """The chart without a rule or a dashboard."""
    chart = tmp_path / "headrace"
    shutil.copytree(helm.chart, chart)
    for path in [*chart.glob("rules/*.yaml"), *chart.glob("dashboards/*.json")]:
        path.unlink()
    return Helm(helm.program, chart)


@pytest.fixture
def filled(bare: Helm) -> Helm:
    """The chart with one of each."""
    (bare.chart / "rules" / "some.yaml").write_text(RULES)
    (bare.chart / "dashboards").mkdir(exist_ok=True)
    (bare.chart / "dashboards" / "overview.json").write_text(json.dumps(DASHBOARD))
    return bare


def config_maps(found: list[Document]) -> list[str]:
    return [each["metadata"]["name"] for each in every(found, "ConfigMap")]


def test_without_files_there_is_nothing(bare):
    found = bare.template(sets=ON, api_versions=[MONITORING])
    assert (every(found, "PrometheusRule"), config_maps(found)) == ([], [])


def test_rules_are_templates_and_what_prometheus_fills_in_is_left_to_it(filled):
    found = filled.template(sets=ON, api_versions=[MONITORING])
    spec = find(found, "PrometheusRule")["spec"]
    (group,) = spec["groups"]
    (rule,) = group["rules"]
    assert rule["expr"] == "headrace_queue_oldest_age_seconds > 120"
    assert rule["annotations"]["summary"] == "{{ $labels.queue }} waits for {{ $value }}"
    assert yaml.safe_load(find(found, "ConfigMap", "headrace-rules")["data"]["headrace.yaml"]) == spec
    without = filled.template(sets={**ON, "tests.enabled": "false"}, api_versions=[MONITORING])
    assert every(without, "PrometheusRule") == []


def test_dashboards_arrive_as_they_are(filled):
    found = filled.template(api_versions=[MONITORING])
    dashboard = find(found, "ConfigMap", "headrace-dashboard-overview")
    assert json.loads(dashboard["data"]["overview.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    elsewhere = filled.template(
        sets={"monitoring.dashboards": '{"enabled":true,"namespace":"grafana","labels":{"find":"me"}}'}
    )
    metadata = find(elsewhere, "ConfigMap", "headrace-dashboard-overview")["metadata"]
    assert metadata["namespace"] == "grafana"
    assert metadata["labels"]["find"] == "me"


def test_without_the_prometheus_operator_neither_is_there_unless_wanted(filled):
    found = filled.template()
    assert (every(found, "PrometheusRule"), config_maps(found)) == ([], [])
    assert config_maps(filled.template(sets=ON)) == ["headrace-rules"]
    assert find(filled.template(sets={"alerts.prometheusRule.enabled": "true"}), "PrometheusRule")


def test_rules_that_are_not_yaml_are_told_by_their_file(filled):
    (filled.chart / "rules" / "some.yaml").write_text("groups: [")
    with pytest.raises(ClusterProblem, match="rules/some.yaml does not become YAML"):
        filled.template(sets=ON)
