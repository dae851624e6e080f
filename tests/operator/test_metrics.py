"""What the operator tells Prometheus of its pools and of itself, and that docs/metrics.md has all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_operator.metrics.page import MetricsPage
from tests.operator.builders import queue_view, told

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def page():
    page = MetricsPage(lambda: True, 500)
    yield page
    page.close()


async def of_pools(page):
    return {key: value for key, value in (await told(page)).items() if key[0] != "headrace_operator_leader"}


async def test_a_pool_is_told_of_with_its_pods_and_decisions(page):
    page.pools.show("shop", "email", {"desired": 3, "ready": 2}, None)
    page.pools.decided("shop", "email", "Backlog", 0.03)
    page.pools.decided("shop", "email", "Idle", None)
    page.pools.refused("shop", "email", 2)
    page.pools.show_backlog("shop", "email", 12.5)
    found = await told(page)
    assert found["headrace_pool_pods", "shop", "email", "desired"] == 3
    assert found["headrace_scaling_decisions_total", "shop", "email", "Backlog"] == 1
    assert found["headrace_scaling_reaction_seconds_count", "shop", "email"] == 1
    assert found["headrace_drains_refused_total", "shop", "email"] == 2
    assert found["headrace_pool_backlog", "shop", "email"] == 12.5
    assert not [key for key in found if key[0] == "headrace_pool_limited"]


async def test_what_limits_a_pool_is_told_until_it_does_no_more(page):
    page.pools.show("shop", "email", {}, "AtMaximum")
    assert (await told(page))["headrace_pool_limited", "shop", "email", "AtMaximum"] == 1
    page.pools.show("shop", "email", {}, "Unschedulable")
    found = await told(page)
    assert found["headrace_pool_limited", "shop", "email", "AtMaximum"] == 0
    assert found["headrace_pool_limited", "shop", "email", "Unschedulable"] == 1
    page.pools.show("shop", "email", {}, None)
    assert (await told(page))["headrace_pool_limited", "shop", "email", "Unschedulable"] == 0


async def test_a_backlog_that_is_not_known_is_not_zero(page):
    page.pools.show_backlog("shop", "email", 7)
    page.pools.show_backlog("shop", "email", None)
    page.pools.show_backlog("shop", "never-seen", None)
    assert await of_pools(page) == {}
    page.pools.show_backlog("shop", "email", 0)
    assert await of_pools(page) == {("headrace_pool_backlog", "shop", "email"): 0}


def everything_of(page, pool):
    page.pools.show("shop", pool, {"desired": 3}, "AtMaximum")
    page.pools.show_backlog("shop", pool, 4)
    page.pools.decided("shop", pool, "Backlog", 0.03)
    page.pools.refused("shop", pool, 1)


async def test_of_a_pool_that_is_gone_nothing_is_told(page):
    everything_of(page, "email")
    page.pools.show("shop", "other", {"desired": 1}, None)
    page.pools.forget("shop", "email")
    page.pools.forget("shop", "never-seen")
    assert await of_pools(page) == {("headrace_pool_pods", "shop", "other", "desired"): 1}


async def test_a_thousand_pools_that_come_and_go_leave_nothing_behind(page):
    for number in range(1000):
        everything_of(page, f"pool-{number}")
        page.pools.forget("shop", f"pool-{number}")
    assert await of_pools(page) == {}


async def test_who_does_not_lead_any_more_tells_of_nothing_but_that(page):
    leads = [True]
    other = MetricsPage(lambda: leads[0], 500)
    everything_of(other, "email")
    other.lead(lambda: [queue_view("orders")])
    found = await told(other)
    assert found["headrace_operator_leader",] == 1
    assert ("headrace_pool_pods", "shop", "email", "desired") in found
    assert ("headrace_queue_depth", "shop", "orders", "high") in found
    other.follow()
    leads[0] = False
    assert await told(other) == {("headrace_operator_leader",): 0}
    other.close()


# ── the contract ─────────────────────────────────────────────────────────────────────────────────────


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of the metrics that docs/metrics.md has, but for those of workers."""
    text = DOCS.read_text(encoding="utf-8").split("## Workers,")[0]
    rows = re.findall(r"^\| `(headrace_\w+)` \| (\w+) \| ([\w, ]*)\|", text, re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"\w+", labels))) for name, kind, labels in rows}


async def test_what_is_documented_is_told_with_its_type_and_labels_and_nothing_else(page):
    everything_of(page, "email")
    page.lead(lambda: [queue_view("orders")])
    found = {}
    for family in text_string_to_metric_families((await page.text()).decode()):
        suffix = "_total" if family.type == "counter" else ""
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name + suffix] = (family.type, frozenset(labels))
    assert len(found) > 20
    assert found == documented()
