"""The rules of a queue: every field, and every mistake with the manifest's own name for it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.config import Boost, Level, Promotion, QueueConfig, RetryPolicy
from headrace_operator.reading import InvalidResource
from tests.operator.builders import queue


def test_the_levels_that_the_schema_fills_in_are_those_of_the_library():
    levels = [
        {"name": "high", "weight": 1, "maxRetries": 5, "timeoutSeconds": 300},
        {"name": "medium", "maxRetries": 3, "timeoutSeconds": 600, "promoteAfterSeconds": 1200, "promoteBatch": 50},
        {"name": "low", "maxRetries": 2, "timeoutSeconds": 900, "promoteAfterSeconds": 600, "promoteBatch": 100},
    ]
    assert queue(levels=levels).config == QueueConfig("orders")


def test_every_field_of_a_configuration_can_be_said():
    read = queue(
        tenant="acme",
        queue="orders-eu",
        levels=[
            {"name": "a", "weight": 6, "maxRetries": 0, "timeoutSeconds": 1.5},
            {"name": "b", "weight": 3},
            {"name": "c", "promoteAfterSeconds": 20},
            {"name": "d", "promoteAfterSeconds": 10, "promoteTo": "a", "promoteBatch": 7},
        ],
        defaultLevel="d",
        selection="Weighted",
        antiStarvation={"boosts": [{"afterSeconds": 30, "factor": 1.5}, {"afterSeconds": 60, "factor": 2}]},
        promotion={"intervalSeconds": 5},
        lease={
            "seconds": 20,
            "heartbeatSeconds": 4,
            "workerDeadAfterSeconds": 50,
            "maxCrashes": 9,
            "repairLimit": 8,
        },
        retry={"baseSeconds": 2, "maxSeconds": 60, "jitter": 0.5, "timeoutFactor": 2},
        retention={"resultSeconds": 0, "deadLetterSeconds": 0, "idempotencySeconds": 5, "maxEvents": 0},
        limits={"maxPayloadBytes": 1000, "maxDelaySeconds": 99},
        paused=False,
        deletionPolicy="Purge",
    )
    assert (read.tenant, read.queue_name, read.paused, read.deletion_policy) == ("acme", "orders-eu", False, "Purge")
    assert read.config == QueueConfig(
        name="orders-eu",
        levels=(
            Level("a", weight=6.0, max_retries=0, timeout_s=1.5),
            Level("b", weight=3.0),
            Level("c"),
            Level("d"),
        ),
        default_level="d",
        selection="weighted",
        boosts=(Boost(30.0, 1.5), Boost(60.0, 2.0)),
        promotions=(Promotion("d", "a", 10.0, 7), Promotion("c", "b", 20.0)),
        promotion_interval_s=5.0,
        retry=RetryPolicy(base_s=2.0, max_s=60.0, jitter=0.5, timeout_factor=2.0),
        lease_s=20.0,
        heartbeat_s=4.0,
        worker_dead_after_s=50.0,
        max_crashes=9,
        repair_limit=8,
        idempotency_window_s=5.0,
        result_retention_s=0.0,
        dead_letter_retention_s=None,
        max_payload_bytes=1000,
        max_delay_s=99.0,
        events_max=0,
    )


def test_a_field_that_is_new_in_the_configuration_has_a_place_in_the_manifest():
    """`test_every_field_of_a_configuration_can_be_said` sets them all; here is the reminder to extend it."""
    assert set(QueueConfig.__struct_fields__) == {
        "name", "levels", "default_level", "selection", "boosts", "promotions", "promotion_interval_s", "retry",
        "lease_s", "heartbeat_s", "worker_dead_after_s", "max_crashes", "repair_limit", "idempotency_window_s",
        "result_retention_s", "dead_letter_retention_s", "max_payload_bytes", "max_delay_s", "events_max",
    }  # fmt: skip


def test_levels_of_one_s_own_come_without_promotions_even_if_they_are_named_like_the_default():
    levels = [
        {"name": "high", "maxRetries": 5, "timeoutSeconds": 300},
        {"name": "medium", "maxRetries": 3, "timeoutSeconds": 600},
        {"name": "low", "maxRetries": 2, "timeoutSeconds": 900},
    ]
    assert queue(levels=levels).config.promotion_rules == ()


LEVELS = [{"name": "high"}, {"name": "low"}]

CONFIG_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"levels": []}, "spec.levels: has 0 levels; a queue has 1 to 32"),
    ({"levels": {}}, "spec.levels: must be a list, not an object"),
    ({"levels": ["high"]}, "spec.levels[0]: must be an object, not 'high'"),
    ({"levels": [{"weight": 1}]}, "spec.levels[0].name: is missing; give it a value"),
    ({"levels": [*LEVELS, {"name": "low"}]}, "spec.levels[2].name: 'low' appears twice; level names are unique"),
    ({"levels": [{"name": "Low"}]}, "spec.levels[0].name: 'Low' is not allowed"),
    ({"levels": [LEVELS[0], {"name": "low", "weight": 0}]}, "spec.levels[1].weight: is 0; it must be above 0"),
    (
        {"levels": [LEVELS[0], {"name": "low", "maxRetries": -1}]},
        "spec.levels[1].maxRetries: is -1; it must be a whole number from 0 to 1000",
    ),
    (
        {"levels": [{"name": "a", "maxRetries": 1.5}]},
        "spec.levels[0].maxRetries: must be a whole number, not 1.5",
    ),
    ({"levels": [{"name": "a", "maxRetries": True}]}, "spec.levels[0].maxRetries: must be a whole number, not true"),
    ({"levels": [{"name": "a", "timeoutSeconds": 0}]}, "spec.levels[0].timeoutSeconds: is 0; it must be above 0"),
    (
        {"levels": [{"name": "a", "timeoutSeconds": "5m"}]},
        "spec.levels[0].timeoutSeconds: must be a number, not '5m'",
    ),
    (
        {"levels": [{"name": "a", "timeoutSeconds": 10**400}]},
        "spec.levels[0].timeoutSeconds: must be a number, not a number as large as that",
    ),
    (
        {"levels": [*LEVELS, {"name": "c", "promoteAfterSeconds": 9, "promoteTo": "nowhere"}]},
        "spec.levels[2].promoteTo: 'nowhere' is not one of high, low, c",
    ),
    (
        {"levels": [{"name": "a", "promoteAfterSeconds": 9, "promoteTo": "b"}, {"name": "b"}]},
        "spec.levels[0].promoteTo: 'b' is not higher than 'a'",
    ),
    (
        {"levels": [{"name": "a"}, {"name": "b", "promoteAfterSeconds": 9, "promoteTo": "b"}]},
        "spec.levels[1].promoteTo: 'b' is not higher than 'b'",
    ),
    (
        {"levels": [{"name": "a", "promoteAfterSeconds": 9}]},
        "spec.levels[0].promoteAfterSeconds: is on the highest level, above which there is none; leave it out",
    ),
    (
        {"levels": [*LEVELS, {"name": "c", "promoteAfterSeconds": 1}, {"name": "d", "promoteAfterSeconds": 0}]},
        "spec.levels[3].promoteAfterSeconds: is 0; it must be above 0",
    ),
    (
        {"levels": [*LEVELS, {"name": "c", "promoteAfterSeconds": 1, "promoteBatch": 0}, {"name": "d"}]},
        "spec.levels[2].promoteBatch: is 0; it must be a whole number from 1 to 10000",
    ),
    (
        {"levels": [LEVELS[0], {"name": "b", "promoteTo": "high"}]},
        "spec.levels[1].promoteTo: is without effect; set promoteAfterSeconds too, or leave it out",
    ),
    (
        {"levels": [LEVELS[0], {"name": "b", "promoteBatch": 5}]},
        "spec.levels[1].promoteBatch: is without effect; set promoteAfterSeconds too, or leave it out",
    ),
    ({"defaultLevel": "urgent"}, "spec.defaultLevel: 'urgent' is not one of high, medium, low"),
    ({"selection": "strict"}, "spec.selection: must be Strict or Weighted, not 'strict'"),
    (
        {"antiStarvation": {"boosts": [{"afterSeconds": 9, "factor": 1}, {"afterSeconds": 9, "factor": 2}]}},
        "spec.antiStarvation.boosts[1].afterSeconds: must be later than the boost before it",
    ),
    (
        {"antiStarvation": {"boosts": [{"afterSeconds": 9, "factor": 0}]}},
        "spec.antiStarvation.boosts[0].factor: is 0; it must be above 0",
    ),
    (
        {"antiStarvation": {"boosts": [{"afterSeconds": 9}]}},
        "spec.antiStarvation.boosts[0].factor: is missing; give it a value",
    ),
    ({"promotion": {"intervalSeconds": 0}}, "spec.promotion.intervalSeconds: is 0; it must be above 0"),
    ({"lease": []}, "spec.lease: must be an object, not a list"),
    ({"lease": {"seconds": -1}}, "spec.lease.seconds: is -1; it must be above 0"),
    (
        {"lease": {"seconds": 30, "heartbeatSeconds": 16}},
        "spec.lease.heartbeatSeconds: 16 is too slow; at most half of spec.lease.seconds (30)",
    ),
    (
        {"lease": {"workerDeadAfterSeconds": 29}},
        "spec.lease.workerDeadAfterSeconds: is 29; it must be at least 30",
    ),
    ({"lease": {"maxCrashes": 0}}, "spec.lease.maxCrashes: is 0; it must be a whole number from 1 to 1000"),
    ({"lease": {"repairLimit": 0}}, "spec.lease.repairLimit: is 0; it must be a whole number from 1 to 10000"),
    ({"retry": {"baseSeconds": -1}}, "spec.retry.baseSeconds: is -1; it must be at least 0"),
    ({"retry": {"baseSeconds": 9, "maxSeconds": 8}}, "spec.retry.maxSeconds: is 8; it must be at least 9"),
    ({"retry": {"jitter": 2}}, "spec.retry.jitter: is 2; it must be at most 1"),
    ({"retry": {"timeoutFactor": 0.5}}, "spec.retry.timeoutFactor: is 0.5; it must be at least 1"),
    ({"retention": {"resultSeconds": -1}}, "spec.retention.resultSeconds: is -1; it must be at least 0"),
    ({"retention": {"deadLetterSeconds": -1}}, "spec.retention.deadLetterSeconds: is -1; it must be above 0"),
    ({"retention": {"idempotencySeconds": 0}}, "spec.retention.idempotencySeconds: is 0; it must be above 0"),
    (
        {"retention": {"maxEvents": -1}},
        "spec.retention.maxEvents: is -1; it must be a whole number from 0 to 10000000",
    ),
    ({"limits": {"maxPayloadBytes": 0}}, "spec.limits.maxPayloadBytes: is 0; it must be a whole number from 1 to"),
    ({"limits": {"maxDelaySeconds": 0}}, "spec.limits.maxDelaySeconds: is 0; it must be above 0"),
]


@pytest.mark.parametrize(("spec", "expected"), CONFIG_MISTAKES, ids=[expected[:60] for _, expected in CONFIG_MISTAKES])
def test_a_mistake_in_a_configuration_is_named_as_the_manifest_names_it(spec, expected):
    with pytest.raises(InvalidResource) as caught:
        queue(**spec)
    assert str(caught.value).startswith(expected)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.problem}"
    assert "_s" not in str(caught.value), "which is how the library's names look"
