"""What a queue may be: the defaults, and for each mistake an error that names the field."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from headrace.model.config import (
    DEFAULT_LEVELS,
    DEFAULT_PROMOTIONS,
    MAX_DURATION_S,
    MAX_LEVELS,
    Boost,
    Level,
    Promotion,
    QueueConfig,
    RetryPolicy,
    config_from_mapping,
)
from headrace.model.errors import InvalidConfig, InvalidInput, InvalidName

A, B, C = Level("a"), Level("b"), Level("c")
LONGEST = f"{MAX_DURATION_S:g}"


# ── defaults ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_needs_a_name_and_nothing_else():
    config = QueueConfig("email")
    assert config.level_names() == ("high", "medium", "low")
    assert (config.default_level, config.selection, config.boosts) == ("medium", "strict", ())
    assert (config.lease_s, config.heartbeat_s, config.worker_dead_after_s) == (30, 10, 90)
    assert config.retry == RetryPolicy(base_s=1, max_s=300, jitter=0, timeout_factor=1.5)
    assert (config.max_crashes, config.repair_limit) == (3, 20)
    assert (config.idempotency_window_s, config.dead_letter_retention_s) == (86_400, 30 * 86_400)


def test_the_default_levels_come_with_the_default_promotions():
    assert QueueConfig("email").promotion_rules == DEFAULT_PROMOTIONS
    assert QueueConfig("email", levels=DEFAULT_LEVELS).promotion_rules == DEFAULT_PROMOTIONS


def test_levels_of_your_own_come_without_promotions():
    assert QueueConfig("email", levels=(A, B)).promotion_rules == ()


def test_promotions_can_be_turned_off():
    assert QueueConfig("email", promotions=()).promotion_rules == ()


@pytest.mark.parametrize(("levels", "default"), [((A,), "a"), ((A, B), "b"), ((A, B, C), "b")])
def test_the_default_level_is_the_middle_one(levels, default):
    assert QueueConfig("email", levels=levels).default_level == default


def test_a_configuration_cannot_be_changed():
    with pytest.raises(AttributeError):
        QueueConfig("email").lease_s = 5  # type: ignore[misc]


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"levels": ()}, "levels: has 0 levels; a queue has 1 to 32"),
    (
        {"levels": tuple(Level(f"l{i}") for i in range(MAX_LEVELS + 1))},
        "levels: has 33 levels; a queue has 1 to 32",
    ),
    ({"levels": (A, B, A)}, "levels[2].name: 'a' appears twice; level names are unique"),
    ({"levels": (Level("a", weight=0),)}, "levels[0].weight: is 0; it must be above 0"),
    ({"levels": (A, Level("b", weight=-1))}, "levels[1].weight: is -1; it must be above 0"),
    ({"levels": (Level("a", weight=1e7),)}, "levels[0].weight: is 1e+07; it must be at most 1e+06"),
    ({"levels": (Level("a", weight=math.nan),)}, "levels[0].weight: must be a number, not nan"),
    ({"levels": (Level("a", weight=math.inf),)}, "levels[0].weight: must be a number, not inf"),
    (
        {"levels": (Level("a", max_retries=-1),)},
        "levels[0].max_retries: is -1; it must be a whole number from 0 to 1000",
    ),
    (
        {"levels": (Level("a", max_retries=1001),)},
        "levels[0].max_retries: is 1001; it must be a whole number from 0 to 1000",
    ),
    (
        {"levels": (Level("a", max_retries=1.5),)},  # type: ignore[arg-type]
        "levels[0].max_retries: is 1.5; it must be a whole number from 0 to 1000",
    ),
    ({"levels": (Level("a", timeout_s=0),)}, "levels[0].timeout_s: is 0; it must be above 0"),
    (
        {"levels": (Level("a", timeout_s="5"),)},  # type: ignore[arg-type]
        "levels[0].timeout_s: must be a number, not '5'",
    ),
    ({"levels": (A, B), "default_level": "c"}, "default_level: 'c' is not one of a, b"),
    (
        {"levels": (A, B), "promotions": (Promotion("c", "a", 60),)},
        "promotions[0].source: 'c' is not one of a, b",
    ),
    (
        {"levels": (A, B), "promotions": (Promotion("b", "a", 60), Promotion("b", "c", 60))},
        "promotions[1].target: 'c' is not one of a, b",
    ),
    (
        {"levels": (A, B), "promotions": (Promotion("a", "b", 60),)},
        "promotions[0].target: 'b' is not higher than 'a'",
    ),
    (
        {"levels": (A, B), "promotions": (Promotion("a", "a", 60),)},
        "promotions[0].target: 'a' is not higher than 'a'",
    ),
    (
        {"levels": (A, B), "promotions": (Promotion("b", "a", 0),)},
        "promotions[0].after_s: is 0; it must be above 0",
    ),
    (
        {"levels": (A, B), "promotions": (Promotion("b", "a", 60, batch=0),)},
        "promotions[0].batch: is 0; it must be a whole number from 1 to 10000",
    ),
    ({"boosts": (Boost(-1, 2),)}, "boosts[0].after_s: is -1; it must be at least 0"),
    ({"boosts": (Boost(30, 0),)}, "boosts[0].factor: is 0; it must be above 0"),
    ({"boosts": (Boost(30, 2), Boost(30, 3))}, "boosts[1].after_s: must be later than the boost before it"),
    ({"retry": RetryPolicy(base_s=-1)}, "retry.base_s: is -1; it must be at least 0"),
    ({"retry": RetryPolicy(base_s=10, max_s=5)}, "retry.max_s: is 5; it must be at least 10"),
    ({"retry": RetryPolicy(jitter=1.1)}, "retry.jitter: is 1.1; it must be at most 1"),
    ({"retry": RetryPolicy(timeout_factor=0.9)}, "retry.timeout_factor: is 0.9; it must be at least 1"),
    ({"retry": RetryPolicy(timeout_factor=11)}, "retry.timeout_factor: is 11; it must be at most 10"),
    ({"promotion_interval_s": 0}, "promotion_interval_s: is 0; it must be above 0"),
    ({"lease_s": 0}, "lease_s: is 0; it must be above 0"),
    ({"lease_s": True}, "lease_s: must be a number, not True"),
    ({"lease_s": 86_401, "worker_dead_after_s": 1e6}, "lease_s: is 86401; it must be at most 86400"),
    ({"heartbeat_s": 0}, "heartbeat_s: is 0; it must be above 0"),
    ({"heartbeat_s": 15.5}, "heartbeat_s: 15.5 is too slow; at most half of lease_s (30)"),
    ({"worker_dead_after_s": 29}, "worker_dead_after_s: is 29; it must be at least 30"),
    ({"idempotency_window_s": 0}, "idempotency_window_s: is 0; it must be above 0"),
    ({"result_retention_s": -1}, "result_retention_s: is -1; it must be at least 0"),
    ({"dead_letter_retention_s": 0}, "dead_letter_retention_s: is 0; it must be above 0"),
    ({"max_delay_s": 1e10}, f"max_delay_s: is 1e+10; it must be at most {LONGEST}"),
    ({"max_crashes": 0}, "max_crashes: is 0; it must be a whole number from 1 to 1000"),
    ({"repair_limit": 0}, "repair_limit: is 0; it must be a whole number from 1 to 10000"),
    ({"max_payload_bytes": 0}, "max_payload_bytes: is 0; it must be a whole number from 1 to 268435456"),
    ({"events_max": -1}, "events_max: is -1; it must be a whole number from 0 to 10000000"),
]


@pytest.mark.parametrize(("settings", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_named_with_its_field(settings, message):
    with pytest.raises(InvalidConfig) as caught:
        QueueConfig("email", **settings)
    assert str(caught.value) == message
    assert caught.value.field == message.partition(": ")[0]
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"name": "E-mail"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "email", "levels": (A, Level("a:b"))}, "levels[1].name"),
    ],
)
def test_a_name_that_is_not_allowed_is_named_with_its_field(settings, field):
    with pytest.raises(InvalidName) as caught:
        QueueConfig(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "settings",
    [
        {"heartbeat_s": 15},
        {"result_retention_s": 0},
        {"dead_letter_retention_s": None},
        {"events_max": 0},
        {"retry": RetryPolicy(base_s=0, max_s=0, jitter=1, timeout_factor=1)},
        {"levels": (Level("a", max_retries=0),)},
        {"levels": tuple(Level(f"l{i}") for i in range(MAX_LEVELS))},
        {"boosts": (Boost(0, 0.5),)},
    ],
)
def test_what_lies_on_the_edge_is_allowed(settings):
    QueueConfig("email", **settings)


# ── from plain data ──────────────────────────────────────────────────────────────────────────────────

FULL = QueueConfig(
    "email",
    levels=(Level("a", weight=0.3, max_retries=0, timeout_s=1.5), B),
    default_level="a",
    selection="weighted",
    boosts=(Boost(30, 1.5),),
    promotions=(Promotion("b", "a", after_s=60, batch=5),),
    retry=RetryPolicy(base_s=0, jitter=0.5),
    dead_letter_retention_s=None,
    events_max=0,
)


@pytest.mark.parametrize("config", [QueueConfig("email"), QueueConfig("email", promotions=()), FULL])
def test_a_configuration_survives_json(config):
    assert config_from_mapping(msgspec.json.decode(msgspec.json.encode(config))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "email", "lease_s": "long"}, "lease_s: Expected `float`, got `str`"),
        ({"name": "email", "levels": [{"name": "a"}, {"nam": "b"}]}, "levels[1]: Object contains unknown field `nam`"),
        ({"name": "email", "selection": "fair"}, "selection: Invalid enum value 'fair'"),
        ({"name": "email", "colour": "blue"}, "config: Object contains unknown field `colour`"),
        ({"lease_s": 5}, "config: Object missing required field `name`"),
        (["email"], "config: Expected `object`, got `array`"),
        ({"name": "email", "levels": [{"name": "a", "weight": 0}]}, "levels[0].weight: is 0; it must be above 0"),
        ({"name": "email", "heartbeat_s": 20}, "heartbeat_s: 20 is too slow; at most half of lease_s (30)"),
    ],
)
def test_a_mistake_in_plain_data_is_named_with_its_field(values, message):
    with pytest.raises(InvalidInput) as caught:
        config_from_mapping(values)
    assert str(caught.value) == message
    assert caught.value.field == message.partition(": ")[0]
