"""``values.schema.json``: every key that there is, and no other, so that a misspelt one is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .values import BadValues, Value

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_SWITCH = ["auto", True, False]
# What Helm or a chart that depends on this one adds to the values.
_FOREIGN = {
    "enabled": {"type": "boolean", "description": "For charts that depend on this one on this condition; unused here."},
    "global": {"type": "object", "description": "What a chart shares with those that it depends on; unused here."},
}


def schema_text(values: Iterable[Value]) -> str:
    """The whole file."""
    root = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Made from values.yaml by `make generate`; do not edit.",
        **_object(values),
    }
    root["properties"] |= _FOREIGN
    return json.dumps(root, indent=2) + "\n"


def _object(values: Iterable[Value]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {value.key: _property(value) for value in values},
    }


def _property(value: Value) -> dict[str, Any]:
    said = {"description": value.description} if value.description else {}
    if value.children:
        return {**said, **_object(value.children), **value.schema}
    if value.schema.get("switch"):
        return {**said, "enum": _SWITCH}
    own = {key: each for key, each in value.schema.items() if key != "open"}
    found: dict[str, Any] = {**said}
    if "enum" not in own:
        found["type"] = own.pop("type", None) or _type(value)
    found |= own
    if isinstance(value.default, dict):
        found |= _open(value)
    elif isinstance(value.default, list) and "items" not in own:
        raise BadValues(f"{value.path} is a list: say of what, as in `# @schema {{items: {{type: string}}}}`")
    return found


def _type(value: Value) -> str:
    if value.default is None:
        raise BadValues(f'{value.path} has no default: say its type, as in `# @schema {{type: [integer, "null"]}}`')
    return _TYPES[type(value.default)]


def _open(value: Value) -> dict[str, Any]:
    within = value.schema.get("open")
    if within is None:
        raise BadValues(f"{value.path} is empty: say what may be in it, as in `# @schema {{open: string}}`")
    if within == "any":
        return {}
    return {"additionalProperties": {"type": "string"} if within == "string" else within}
