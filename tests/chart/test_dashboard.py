"""The Grafana dashboard: that each of its queries has an answer where there is every metric that we promise."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from benchmarks.dashboard.panels import substituted
from benchmarks.dashboard.prometheus import Prometheus, PrometheusProblem
from benchmarks.dashboard.units import scale, shown
from tests.chart.helm import CHART, REPOSITORY
from tests.chart.sample_figures import NAMESPACE, POOL, QUEUES, SampleFigures
from tests.support.metrics_page import documented, misuses
from tests.support.prometheus_server import SCRAPE_INTERVAL_S, metrics_page, prometheus_server
from tests.support.waiting import wait_until
from tools.dashboard.grafana import text

PLACE = CHART / "dashboards" / "headrace.json"
DASHBOARD = json.loads(PLACE.read_text())
PANELS = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]
CHOSEN = {"namespace": NAMESPACE, "queue": "|".join(QUEUES), "pool": POOL}
# Enough for a rate.
SCRAPES = 6
COMMAND_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """A Prometheus that has read every documented metric for a while."""
    figures = SampleFigures()
    with metrics_page(figures.page) as port, prometheus_server(port) as server:
        enough = f"count_over_time(headrace_operator_leader[1m]) >= {SCRAPES}"
        wait_until(lambda: server.now(enough), message="Prometheus did not read the page often enough")
        yield server


def asked(query: str) -> str:
    return substituted(query, CHOSEN, 4 * SCRAPE_INTERVAL_S)


# ── its form ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_dashboard_is_as_its_description_makes_it():
    assert PLACE.read_text() == text(), "run `python -m tools.dashboard` and commit what it writes"


def test_grafana_finds_it_again():
    assert DASHBOARD["uid"] == "headrace"
    assert DASHBOARD["schemaVersion"] >= 39
    assert "id" not in DASHBOARD, "an id belongs to one Grafana only"


def test_ids_are_unique():
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)


def test_panels_do_not_overlap_and_fit_into_the_grid():
    def cells(panel):
        place = panel["gridPos"]
        return {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }

    for one, other in itertools.combinations(PANELS, 2):
        assert not cells(one) & cells(other), f"{one['title']} and {other['title']} overlap"
    assert all(x < 24 for panel in PANELS for x, _ in cells(panel))


def test_each_panel_says_what_it_shows_and_asks_the_chosen_source():
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}


def test_variables_that_are_used_are_there():
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "namespace", "queue", "pool"}
    used = set(re.findall(r"\$\{?(\w+)\}?", PLACE.read_text())) - {"__rate_interval", "__all"}
    assert used <= names


# ── its queries ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_queries_ask_only_for_what_there_is(title, query):
    assert not misuses(query)


def test_a_query_for_what_there_is_not_is_noticed():
    assert misuses("sum(headrace_nothing)") == ["docs/metrics.md has no headrace_nothing"]
    assert misuses('headrace_queue_paused{pool="a"}') == ["headrace_queue_paused has no label pool"]
    assert misuses("sum by (pool) (headrace_queue_paused)") == ["nothing here has a label pool"]
    assert misuses("rate(headrace_queue_paused_bucket[5m])") == ["docs/metrics.md has no headrace_queue_paused_bucket"]


def test_every_metric_is_shown_somewhere():
    queries = " ".join(query for _, query in QUERIES)
    unseen = {name for name in documented() if not re.search(rf"\b{name}(_bucket)?\b", queries)}
    assert not unseen


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_each_query_has_an_answer(prometheus, title, query):
    found = prometheus.now(asked(query))
    assert found, f"{title}: {query} finds nothing"
    assert all(series.points for series in found), "what comes out is no number"


@pytest.mark.parametrize("panel", [panel for panel in PANELS if "targets" in panel], ids=lambda panel: panel["title"])
def test_legends_tell_the_lines_of_a_panel_apart(prometheus, panel):
    legends = []
    for target in panel["targets"]:
        for series in prometheus.now(asked(target["expr"])):
            labels = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            assert set(labels) <= set(series.labels), f"{target['legendFormat']} of {target['expr']}"
            legends.append((target["legendFormat"], *(series.labels[label] for label in labels)))
    assert len(set(legends)) == len(legends)


def test_variables_have_values(prometheus):
    found = {}
    for variable in DASHBOARD["templating"]["list"][1:]:
        ((series, label),) = re.findall(r"^label_values\((.*), (\w+)\)$", variable["definition"])
        assert variable["query"]["query"] == variable["definition"]
        found[variable["name"]] = prometheus.ask(f"label/{label}/values", **{"match[]": asked(series)})
    assert found == {"namespace": [NAMESPACE], "queue": sorted(QUEUES), "pool": [POOL]}


# ── its picture ──────────────────────────────────────────────────────────────────────────────────────


def picture(prometheus, output, *arguments):
    command = [sys.executable, "-m", "benchmarks.dashboard", f"--prometheus={prometheus.url}", f"--output={output}"]
    return subprocess.run(
        [*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )


def test_the_picture_has_every_panel_with_its_lines(prometheus, tmp_path):
    output = tmp_path / "dashboard.svg"
    chosen = [f"--variable={name}={value}" for name, value in CHOSEN.items()]
    done = picture(prometheus, output, "--minutes=0.2", f"--scrape-interval={SCRAPE_INTERVAL_S}", *chosen)
    assert done.returncode == 0, done.stderr
    assert "panels without data: none" in done.stdout
    root = ElementTree.fromstring(output.read_text())
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {substituted(panel["title"], CHOSEN, 1) for panel in PANELS} <= words
    assert "shop/orders high" in words
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", path.attrib["d"]):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_the_picture_says_which_panels_have_no_data(prometheus, tmp_path):
    done = picture(prometheus, tmp_path / "dashboard.svg", "--variable=pool=nobody")
    assert done.returncode == 0
    assert "Pods and backlog" in done.stdout
    assert "Depth" not in done.stdout


def test_who_is_no_prometheus_is_told_of(tmp_path):
    done = picture(Prometheus("http://127.0.0.1:9"), tmp_path / "dashboard.svg")
    assert done.returncode == 1
    assert "http://127.0.0.1:9 does not answer" in done.stderr


def test_a_query_that_is_refused_is_named(prometheus):
    with pytest.raises(PrometheusProblem, match=r"refuses 'sum\(': .*parse error"):
        prometheus.now("sum(")


def test_numbers_are_told_as_people_read_them():
    assert [shown(value, "short") for value in (0, 0.5, 12, 1200, 3.4e6)] == ["0", "0.5", "12", "1.2 k", "3.4 M"]
    assert [shown(value, "s") for value in (0, 0.02, 1.5, 90, 7200)] == ["0", "20 ms", "1.5 s", "1.5 min", "2 h"]
    assert [shown(0.25, "percentunit"), shown(3, "ops")] == ["25 %", "3/s"]


def test_scales_end_on_round_numbers():
    assert scale(0, 4) == [0, 1]
    assert scale(7, 4) == [0, 2, 4, 6, 8]
    assert scale(1000, 4) == [0, 500, 1000]
    assert scale(0.03, 4) == pytest.approx([0, 0.01, 0.02, 0.03])
