"""What a queue is: its levels, how they are chosen from, and every number that governs a task's life.

The defaults are those of a queue with three levels (high, medium, low) and age-based promotion.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from .errors import InvalidConfig, InvalidInput
from .names import check_name

MAX_LEVELS = 32
MAX_DURATION_S = 10 * 365 * 86_400.0
"""Longer than any queue needs, short enough that microseconds stay exact in a double."""

DAY_S = 86_400.0


class _Settings(msgspec.Struct, frozen=True):
    """Common ground of the configuration's parts. Written out in full: defaults may change with a version."""


Selection = Literal["strict", "weighted"]
"""How the next level is chosen: always the highest, or by draw."""


class Level(_Settings, frozen=True):
    """One priority level. ``weight`` matters with weighted selection only."""

    name: str
    weight: float = 1.0
    max_retries: int = 3
    timeout_s: float = 300.0


class Boost(_Settings, frozen=True):
    """Multiply a level's weight by ``factor`` once its oldest task has waited ``after_s``."""

    after_s: float
    factor: float


class Promotion(_Settings, frozen=True):
    """Move tasks that have waited ``after_s`` from one level to a higher one, ``batch`` at a time."""

    source: str
    target: str
    after_s: float
    batch: int = 100


class RetryPolicy(_Settings, frozen=True):
    """Wait min(base_s · 2^retries, max_s) before the next attempt. A base of 0 retries at once."""

    base_s: float = 1.0
    max_s: float = 300.0
    jitter: float = 0.0
    """Up to this fraction of the delay is taken off at random, so that failures do not return in step."""
    timeout_factor: float = 1.5
    """Each retry may run this much longer than the attempt before it."""


DEFAULT_LEVELS = (
    Level("high", max_retries=5, timeout_s=300.0),
    Level("medium", max_retries=3, timeout_s=600.0),
    Level("low", max_retries=2, timeout_s=900.0),
)
DEFAULT_PROMOTIONS = (
    Promotion("low", "medium", after_s=600.0, batch=100),
    Promotion("medium", "high", after_s=1200.0, batch=50),
)


class QueueConfig(_Settings, frozen=True):
    """Everything that can be said about a queue. Checked when it is made; errors name the field."""

    name: str
    levels: tuple[Level, ...] = DEFAULT_LEVELS
    """Highest priority first."""
    default_level: str = ""
    """For tasks that name none. Empty: the middle level."""
    selection: Selection = "strict"
    boosts: tuple[Boost, ...] = ()
    promotions: tuple[Promotion, ...] | None = None
    """None: the default promotions with the default levels, no promotion with levels of your own."""
    promotion_interval_s: float = 60.0
    retry: RetryPolicy = RetryPolicy()
    lease_s: float = 30.0
    heartbeat_s: float = 10.0
    worker_dead_after_s: float = 90.0
    max_crashes: int = 3
    """A task that has taken this many workers down with it is dead-lettered as poison."""
    repair_limit: int = 20
    """How many expired leases and due tasks one claim repairs at most."""
    idempotency_window_s: float = DAY_S
    result_retention_s: float = 3600.0
    """How long finished tasks are kept. 0 deletes them at once."""
    dead_letter_retention_s: float | None = 30 * DAY_S
    """None keeps dead letters until somebody deals with them."""
    max_payload_bytes: int = 1 << 20
    max_delay_s: float = 366 * DAY_S
    events_max: int = 10_000
    """Roughly how many entries the event stream keeps. 0 turns it off."""

    def __post_init__(self) -> None:
        if self.promotions is None:
            promotions = DEFAULT_PROMOTIONS if self.levels == DEFAULT_LEVELS else ()
            msgspec.structs.force_setattr(self, "promotions", promotions)
        if not self.default_level and self.levels:
            msgspec.structs.force_setattr(self, "default_level", self.levels[len(self.levels) // 2].name)
        _check(self)

    @property
    def promotion_rules(self) -> tuple[Promotion, ...]:
        """The promotions in force."""
        return self.promotions or ()

    def level_names(self) -> tuple[str, ...]:
        """The levels' names, highest first."""
        return tuple(level.name for level in self.levels)


def config_from_mapping(values: Any) -> QueueConfig:
    """Read a configuration from plain data (parsed JSON or YAML); errors name the field."""
    _refuse_unknown_fields(values, QueueConfig, "")
    try:
        return msgspec.convert(values, QueueConfig)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):
            raise error.__cause__ from None  # our own check, which has named the field
        problem, _, path = str(error).partition(" - at ")
        raise InvalidConfig(path.strip("`").removeprefix("$.") or "config", problem) from error


def stored_config(text: bytes | str) -> QueueConfig:
    """Read a configuration that Headrace has stored, perhaps a newer one: fields it does not know are passed over."""
    return msgspec.json.decode(text, type=QueueConfig)


def _refuse_unknown_fields(values: Any, shape: type[_Settings], path: str) -> None:
    if not isinstance(values, dict):
        return  # the conversion that follows says what is wrong
    for name, value in values.items():
        if name not in shape.__struct_fields__:
            raise InvalidConfig(path or "config", f"Object contains unknown field `{name}`")
        parts = value if isinstance(value, (list, tuple)) else [value]
        if name in _PARTS:
            for index, part in enumerate(parts):
                where = f"{name}[{index}]" if parts is value else name
                _refuse_unknown_fields(part, _PARTS[name], f"{path}.{where}" if path else where)


_PARTS: dict[str, type[_Settings]] = {
    "levels": Level,
    "boosts": Boost,
    "promotions": Promotion,
    "retry": RetryPolicy,
}


def _check(config: QueueConfig) -> None:
    check_name("name", config.name)
    _check_levels(config)
    _check_promotions(config)
    _check_boosts(config.boosts)
    _check_retry(config.retry)
    _check_durations(config)
    _count("max_crashes", config.max_crashes, 1, 1000)
    _count("repair_limit", config.repair_limit, 1, 10_000)
    _count("max_payload_bytes", config.max_payload_bytes, 1, 256 << 20)
    _count("events_max", config.events_max, 0, 10_000_000)


def _check_levels(config: QueueConfig) -> None:
    if not 1 <= len(config.levels) <= MAX_LEVELS:
        raise InvalidConfig("levels", f"has {len(config.levels)} levels; a queue has 1 to {MAX_LEVELS}")
    seen: set[str] = set()
    for index, level in enumerate(config.levels):
        where = f"levels[{index}]"
        check_name(f"{where}.name", level.name)
        if level.name in seen:
            raise InvalidConfig(f"{where}.name", f"{level.name!r} appears twice; level names are unique")
        seen.add(level.name)
        _number(f"{where}.weight", level.weight, above=0.0, at_most=1e6)
        _count(f"{where}.max_retries", level.max_retries, 0, 1000)
        _number(f"{where}.timeout_s", level.timeout_s, above=0.0, at_most=MAX_DURATION_S)
    if config.default_level not in seen:
        raise InvalidConfig("default_level", f"{config.default_level!r} is not one of {_listed(config.level_names())}")


def _check_promotions(config: QueueConfig) -> None:
    order = config.level_names()
    for index, rule in enumerate(config.promotion_rules):
        where = f"promotions[{index}]"
        for field, level in (("source", rule.source), ("target", rule.target)):
            if level not in order:
                raise InvalidConfig(f"{where}.{field}", f"{level!r} is not one of {_listed(order)}")
        if order.index(rule.target) >= order.index(rule.source):
            raise InvalidConfig(f"{where}.target", f"{rule.target!r} is not higher than {rule.source!r}")
        _number(f"{where}.after_s", rule.after_s, above=0.0, at_most=MAX_DURATION_S)
        _count(f"{where}.batch", rule.batch, 1, 10_000)


def _check_boosts(boosts: tuple[Boost, ...]) -> None:
    for index, boost in enumerate(boosts):
        _number(f"boosts[{index}].after_s", boost.after_s, at_least=0.0, at_most=MAX_DURATION_S)
        _number(f"boosts[{index}].factor", boost.factor, above=0.0, at_most=1e6)
        if index and boost.after_s <= boosts[index - 1].after_s:
            raise InvalidConfig(f"boosts[{index}].after_s", "must be later than the boost before it")


def _check_retry(retry: RetryPolicy) -> None:
    _number("retry.base_s", retry.base_s, at_least=0.0, at_most=MAX_DURATION_S)
    _number("retry.max_s", retry.max_s, at_least=retry.base_s, at_most=MAX_DURATION_S)
    _number("retry.jitter", retry.jitter, at_least=0.0, at_most=1.0)
    _number("retry.timeout_factor", retry.timeout_factor, at_least=1.0, at_most=10.0)


def _check_durations(config: QueueConfig) -> None:
    _number("promotion_interval_s", config.promotion_interval_s, above=0.0, at_most=MAX_DURATION_S)
    _number("lease_s", config.lease_s, above=0.0, at_most=DAY_S)
    _number("heartbeat_s", config.heartbeat_s, above=0.0, at_most=DAY_S)
    if config.heartbeat_s * 2 > config.lease_s:
        raise InvalidConfig(
            "heartbeat_s", f"{config.heartbeat_s:g} is too slow; at most half of lease_s ({config.lease_s:g})"
        )
    _number("worker_dead_after_s", config.worker_dead_after_s, at_least=config.lease_s, at_most=MAX_DURATION_S)
    _number("idempotency_window_s", config.idempotency_window_s, above=0.0, at_most=MAX_DURATION_S)
    _number("result_retention_s", config.result_retention_s, at_least=0.0, at_most=MAX_DURATION_S)
    if config.dead_letter_retention_s is not None:
        _number("dead_letter_retention_s", config.dead_letter_retention_s, above=0.0, at_most=MAX_DURATION_S)
    _number("max_delay_s", config.max_delay_s, above=0.0, at_most=MAX_DURATION_S)


def _number(
    field: str, value: object, *, above: float | None = None, at_least: float | None = None, at_most: float
) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise InvalidConfig(field, f"must be a number, not {value!r}")
    if above is not None and value <= above:
        raise InvalidConfig(field, f"is {value:g}; it must be above {above:g}")
    if at_least is not None and value < at_least:
        raise InvalidConfig(field, f"is {value:g}; it must be at least {at_least:g}")
    if value > at_most:
        raise InvalidConfig(field, f"is {value:g}; it must be at most {at_most:g}")


def _count(field: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidConfig(field, f"is {value!r}; it must be a whole number from {low} to {high}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
