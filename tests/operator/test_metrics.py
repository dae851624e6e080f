"""What the operator tells Prometheus of its pools."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from headrace_operator.metrics import PoolMetrics


def samples(metrics):
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_pool_is_told_of_with_its_pods_and_decisions():
    metrics = PoolMetrics()
    metrics.show("shop", "email", {"desired": 3, "ready": 2})
    metrics.decided("shop", "email", "Backlog", 0.03)
    metrics.decided("shop", "email", "Idle", None)
    metrics.refused("shop", "email", 2)
    found = samples(metrics)
    assert found["headrace_pool_pods", "desired", "email", "shop"] == 3
    assert found["headrace_scaling_decisions_total", "Backlog", "email", "shop"] == 1
    assert found["headrace_scaling_reaction_seconds_count", "email", "shop"] == 1
    assert found["headrace_drains_refused_total", "email", "shop"] == 2


def test_of_a_pool_that_is_gone_nothing_is_told():
    metrics = PoolMetrics()
    metrics.show("shop", "email", {"desired": 3})
    metrics.decided("shop", "email", "Backlog", 0.03)
    metrics.show("shop", "other", {"desired": 1})
    metrics.forget("shop", "email")
    metrics.forget("shop", "never-seen")
    assert {labels for _, *labels in samples(metrics) for labels in [tuple(labels)]} == {("desired", "other", "shop")}
    metrics.forget_all()
    assert samples(metrics) == {}


def test_a_thousand_pools_that_come_and_go_leave_nothing_behind():
    metrics = PoolMetrics()
    for number in range(1000):
        metrics.show("shop", f"pool-{number}", {"desired": 1})
        metrics.decided("shop", f"pool-{number}", "Backlog", 0.1)
        metrics.forget("shop", f"pool-{number}")
    assert samples(metrics) == {}
