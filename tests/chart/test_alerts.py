"""The alerts: that they fire when they shall and only then, say what they are about, and lead to a runbook.

What Prometheus is given and what must come of it is in `alerts/`, a file for each alert, as promtool reads it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import REPOSITORY
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run
from tests.support.alert_rules import alert_values, alerts, rendered
from tests.support.metrics_page import misuses

# helm is built when no test cluster has brought it yet.
pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CASES = sorted((HERE / "alerts").glob("*.yaml"))
CHANGED = HERE / "changed_alerts"
RUNBOOKS = REPOSITORY / "docs" / "runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
PROMTOOL_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def rules() -> str:
    """The rules of an installation that changes nothing."""
    return rendered({})


def promtool_test(folder: Path, rules: str, cases: Path) -> None:
    """Have promtool run the cases against the rules; what came out otherwise is in the error."""
    (folder / "rules.yaml").write_text(rules)
    shutil.copy(cases, folder)
    run(["promtool", "test", "rules", cases.name], timeout_s=PROMTOOL_TIMEOUT_S, cwd=folder)


def camel_case(alert: str) -> str:
    """What values.yaml calls an alert."""
    bare = alert.removeprefix("Headrace")
    return bare[0].lower() + bare[1:]


# ── when they fire ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_an_alert_fires_when_it_shall_and_only_then(tmp_path, rules, cases):
    promtool_test(tmp_path, rules, cases)


def test_thresholds_durations_severities_and_labels_can_be_changed(tmp_path):
    changed = rendered(yaml.safe_load((CHANGED / "values.yaml").read_text()))
    promtool_test(tmp_path, changed, CHANGED / "changed.yaml")


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_the_cases_of_an_alert_are_about_it_and_of_both_kinds(cases):
    tests = yaml.safe_load(cases.read_text())["tests"]
    expected = [case for test in tests for case in test.get("alert_rule_test", ())]
    assert {case["alertname"] for case in expected} == {cases.stem}
    fires = [bool(case["exp_alerts"]) for case in expected]
    assert any(fires), "there is no case in which it fires"
    assert not all(fires), "there is no case in which it does not fire"
    assert all("alert_rule_test" in test or "promql_expr_test" in test for test in tests)


def test_the_cases_can_fail(tmp_path, rules):
    unlike = rules.replace("> 1000", "> 1500")
    assert unlike != rules
    with pytest.raises(ClusterProblem, match="HeadraceHighPriorityDepth"):
        promtool_test(tmp_path, unlike, HERE / "alerts" / "HeadraceHighPriorityDepth.yaml")


# ── what they are ────────────────────────────────────────────────────────────────────────────────────


def test_promtool_finds_nothing_wrong(tmp_path, rules):
    (tmp_path / "rules.yaml").write_text(rules)
    run(["promtool", "check", "rules", "--lint-fatal", "rules.yaml"], timeout_s=PROMTOOL_TIMEOUT_S, cwd=tmp_path)


def test_each_alert_has_its_values_its_cases_and_its_runbook(rules):
    names = set(alerts(rules))
    assert {camel_case(name) for name in names} == set(alert_values())
    assert {path.stem for path in CASES} == names
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == names


def test_each_alert_can_be_left_out():
    everything = set(alerts(rendered({})))
    for name in alert_values():
        left = alerts(rendered({"alerts": {name: {"enabled": False}}}))
        assert {camel_case(alert) for alert in everything - set(left)} == {name}


def test_alerts_ask_only_for_what_there_is(rules):
    wrong = {name: found for name, rule in alerts(rules).items() if (found := misuses(rule["expr"]))}
    assert not wrong


def test_alerts_say_where_it_is_and_what_to_read(rules):
    for name, rule in alerts(rules).items():
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert annotations["runbook_url"].endswith(f"/{name}.md")
        assert rule["labels"]["severity"] in ("critical", "warning")
        where = "headrace-system" if name == "HeadraceOperatorWithoutLeader" else "{{ $labels.namespace }}"
        assert where in annotations["summary"], name
        assert where in annotations["description"], name


def test_the_levels_of_the_agreed_design_are_the_defaults():
    values = alert_values()
    assert {name for name, alert in values.items() if alert["severity"] == "critical"} >= {
        *("noActiveWorkers", "highPriorityDepth", "failureRate", "deadLetterGrowth")
    }
    assert values["noActiveWorkers"]["for"] == "2m"
    assert values["highPriorityDepth"]["threshold"] == 1000
    assert values["failureRate"]["threshold"] == 0.25
    assert values["deadLetterGrowth"]["threshold"] == 10
    assert (values["workerUtilisation"]["threshold"], values["workerUtilisation"]["for"]) == (0.9, "10m")
    assert values["lowPriorityWaiting"]["threshold"] == 25 * 60
    assert values["queueDepth"]["threshold"] == 5000


# ── runbooks ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "page", sorted(set(RUNBOOKS.glob("*.md")) - {RUNBOOKS / "README.md"}), ids=lambda path: path.stem
)
def test_a_runbook_has_its_four_sections_and_a_command(page):
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    diagnosis = text.partition("## Diagnosis")[2].partition("## Mitigation")[0]
    assert re.search(r"^kubectl ", diagnosis, re.MULTILINE), "a diagnosis begins with a look"


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_asks_only_for_metrics_that_there_are(page):
    queries = re.findall(r"^```promql\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    wrong = [found for query in queries for found in misuses(query)]
    assert not wrong


def test_the_index_has_every_runbook(rules):
    index = (RUNBOOKS / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == set(alerts(rules))
