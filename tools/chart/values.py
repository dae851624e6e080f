"""The chart's values with what their comments say.

Above each key stands a comment. It begins with ``--``, which is the mark of helm-docs, and says what the value is for.
A line ``@schema {…}`` in it has what JSON schema shall ask for beside the type, and two words of our own:

- ``open: any`` is an object that may hold anything, ``open: string`` one of texts, ``open: {…}`` one of what this says;
- ``switch: true`` is true, false or "auto".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_DESCRIPTION = "-- "
_SCHEMA = "@schema "


class BadValues(Exception):
    """What is wrong with values.yaml, for whoever wrote it."""


@dataclass(frozen=True)
class Value:
    """One key. An object that holds values of its own has ``children``, any other its default."""

    path: str
    default: Any
    description: str
    schema: dict[str, Any]
    children: tuple[Value, ...] = ()

    @property
    def key(self) -> str:
        return self.path.rpartition(".")[2]


def read(text: str) -> tuple[Value, ...]:
    """All values, in the order of the file; `BadValues` says at which key something is missing."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise BadValues("values.yaml is not an object")
    return tuple(_children(root, "", text.splitlines()))


def leaves(values: tuple[Value, ...]) -> Iterator[Value]:
    """The values that somebody sets, without the objects that they are in."""
    for value in values:
        if value.children:
            yield from leaves(value.children)
        else:
            yield value


def _children(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Value]:
    for key_node, value_node in node.value:
        path = f"{prefix}{key_node.value}"
        description, schema = _comment(path, lines, key_node.start_mark.line)
        is_group = isinstance(value_node, yaml.MappingNode) and bool(value_node.value) and "open" not in schema
        if is_group:
            yield Value(path, None, description, schema, tuple(_children(value_node, f"{path}.", lines)))
            continue
        if not description:
            raise BadValues(f"{path} has no description: write one above it, as in `# -- What it is for.`")
        yield Value(path, _plain(value_node), description, schema)


def _comment(path: str, lines: list[str], line: int) -> tuple[str, dict[str, Any]]:
    """What stands directly above a line: the description, and the schema's own words."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    said: list[str] = []
    schema: dict[str, Any] = {}
    for text in (each.lstrip().removeprefix("#").strip() for each in lines[first:line]):
        if text.startswith(_SCHEMA):
            schema = _schema(path, text.removeprefix(_SCHEMA))
        elif text.startswith(_DESCRIPTION):
            said = [text.removeprefix(_DESCRIPTION)]
        elif said:
            said.append(text)
    return " ".join(said), schema


def _schema(path: str, text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadValues(f"{path}: @schema is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise BadValues(f"{path}: @schema must be an object, as in `# @schema {{minimum: 1}}`")
    return found


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))
