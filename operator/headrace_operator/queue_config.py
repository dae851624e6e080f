"""The rules of a queue, as a TaskQueue's manifest says them.

What belongs here: which field of the manifest is which field of `QueueConfig`, on the way in and, when that refuses
one, on the way back. The rules themselves are the library's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.model.config import Boost, Level, Promotion, QueueConfig, RetryPolicy, Selection
from headrace.model.errors import InvalidInput

from .reading import InvalidResource, Part

_SELECTIONS: Final[dict[str, Selection]] = {"Strict": "strict", "Weighted": "weighted"}
_NUMBERS: Final[tuple[tuple[str, str, str, type[int] | type[float]], ...]] = (
    # section, field of the manifest, field of QueueConfig, what it is
    ("promotion", "intervalSeconds", "promotion_interval_s", float),
    ("lease", "seconds", "lease_s", float),
    ("lease", "heartbeatSeconds", "heartbeat_s", float),
    ("lease", "workerDeadAfterSeconds", "worker_dead_after_s", float),
    ("lease", "maxCrashes", "max_crashes", int),
    ("lease", "repairLimit", "repair_limit", int),
    ("retry", "baseSeconds", "retry.base_s", float),
    ("retry", "maxSeconds", "retry.max_s", float),
    ("retry", "jitter", "retry.jitter", float),
    ("retry", "timeoutFactor", "retry.timeout_factor", float),
    ("retention", "resultSeconds", "result_retention_s", float),
    ("retention", "deadLetterSeconds", "dead_letter_retention_s", float),
    ("retention", "idempotencySeconds", "idempotency_window_s", float),
    ("retention", "maxEvents", "events_max", int),
    ("limits", "maxPayloadBytes", "max_payload_bytes", int),
    ("limits", "maxDelaySeconds", "max_delay_s", float),
)
_MANIFEST_FIELDS: Final = {
    "levels": "spec.levels",
    "default_level": "spec.defaultLevel",
    **{name: f"spec.{section}.{key}" for section, key, name, _ in _NUMBERS},
}
_MANIFEST_LISTS: Final = {
    "levels": "spec.levels",
    "promotions": "spec.levels",
    "boosts": "spec.antiStarvation.boosts",
}
_MANIFEST_ITEMS: Final = {
    ("levels", "name"): "name",
    ("levels", "weight"): "weight",
    ("levels", "max_retries"): "maxRetries",
    ("levels", "timeout_s"): "timeoutSeconds",
    ("promotions", "source"): "name",
    ("promotions", "target"): "promoteTo",
    ("promotions", "after_s"): "promoteAfterSeconds",
    ("promotions", "batch"): "promoteBatch",
    ("boosts", "after_s"): "afterSeconds",
    ("boosts", "factor"): "factor",
}
_ITEM: Final = re.compile(r"(\w+)\[(\d+)\]\.(\w+)")


def read_queue_config(spec: Part, name: str, name_field: str) -> QueueConfig:
    """`QueueConfig` is the one place that checks the rules of a queue; here its errors get the manifest's names."""
    found: dict[str, Any] = {"name": name}
    for section, key, target, kind in _NUMBERS:
        part = spec.part(section)
        value = part.whole(key) if kind is int else part.number(key)
        if value is not None:
            found[target] = value
    if found.get("dead_letter_retention_s") == 0:
        found["dead_letter_retention_s"] = None  # which keeps them for ever
    retry = {key.removeprefix("retry."): found.pop(key) for key in list(found) if key.startswith("retry.")}
    found["retry"] = RetryPolicy(**retry)
    found["default_level"] = spec.text("defaultLevel") or ""
    found["selection"] = spec.choice("selection", _SELECTIONS) or "strict"
    found["boosts"] = _boosts(spec.part("antiStarvation"))
    levels = spec.parts("levels")
    promoted: list[int] = []
    if levels is not None:
        found["levels"] = tuple(_level(part) for part in levels)
        # The lowest first: one round then lifts a task that is due on several levels all the way.
        promoted = [index for index, part in enumerate(levels) if "promoteAfterSeconds" in part][::-1]
        found["promotions"] = tuple(_promotion(levels, index) for index in promoted)
    try:
        return QueueConfig(**found)
    except InvalidInput as error:
        raise _in_manifest_terms(error, name_field, promoted) from None


def _level(part: Part) -> Level:
    read: dict[str, Any] = {
        "weight": part.number("weight"),
        "max_retries": part.whole("maxRetries"),
        "timeout_s": part.number("timeoutSeconds"),
    }
    if "promoteAfterSeconds" not in part:
        for key in ("promoteTo", "promoteBatch"):
            if key in part:
                raise InvalidResource(part.at(key), "is without effect; set promoteAfterSeconds too, or leave it out")
    return Level(part.required_text("name"), **{key: value for key, value in read.items() if value is not None})


def _promotion(levels: Sequence[Part], index: int) -> Promotion:
    part = levels[index]
    after_s = part.required("promoteAfterSeconds", part.number("promoteAfterSeconds"))
    target = part.text("promoteTo")
    if target is None:
        if index == 0:
            raise InvalidResource(
                part.at("promoteAfterSeconds"), "is on the highest level, above which there is none; leave it out"
            )
        target = levels[index - 1].required_text("name")
    batch = part.whole("promoteBatch")
    given = {} if batch is None else {"batch": batch}
    return Promotion(part.required_text("name"), target, after_s, **given)


def _boosts(part: Part) -> tuple[Boost, ...]:
    return tuple(
        Boost(
            boost.required("afterSeconds", boost.number("afterSeconds")),
            boost.required("factor", boost.number("factor")),
        )
        for boost in part.parts("boosts") or ()
    )


def _in_manifest_terms(error: InvalidInput, name_field: str, promoted: Sequence[int]) -> InvalidResource:
    """``promoted`` says for each promotion on which level it stands."""
    problem = error.problem
    if error.field == "heartbeat_s":
        problem = problem.replace("lease_s", "spec.lease.seconds")
    if error.field == "name":
        return InvalidResource(name_field, problem)
    item = _ITEM.fullmatch(error.field)
    if item is None:
        return InvalidResource(_MANIFEST_FIELDS.get(error.field, "spec"), problem)
    group, index, leaf = item[1], int(item[2]), item[3]
    if group == "promotions":
        index = promoted[index]
    return InvalidResource(f"{_MANIFEST_LISTS[group]}[{index}].{_MANIFEST_ITEMS[group, leaf]}", problem)
