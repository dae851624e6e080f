"""Reading a manifest piece by piece.

What belongs here: the reader that knows where in a manifest it stands, the error that names that place, and the checks
that every resource needs whatever its kind, such as who it is and which names are allowed. What does not: the fields of
any one kind; those are in the modules above this one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from headrace.model.errors import InvalidInput
from headrace.model.names import check_name

_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

T = TypeVar("T")


class InvalidResource(InvalidInput):
    """Raised when a custom resource, or a Secret it names, cannot be made true as it is; names the manifest's field."""


class Part:
    """One object within a manifest, which knows where it stands. What is absent or null reads as None."""

    def __init__(self, value: object, path: str) -> None:
        if value is not None and not isinstance(value, Mapping):
            raise InvalidResource(path, f"must be an object, not {shown(value)}")
        self._values: Mapping[str, object] = value or {}
        self.path = path

    def __iter__(self) -> Iterator[str]:
        return (key for key, value in self._values.items() if value is not None)

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def at(self, key: str) -> str:
        """The full name of one of its fields."""
        return f"{self.path}.{key}" if self.path else key

    def value(self, key: str) -> object:
        return self._values.get(key)

    def part(self, key: str) -> Part:
        return Part(self._values.get(key), self.at(key))

    def items(self, key: str) -> list[object] | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, (list, tuple)):
            raise InvalidResource(self.at(key), f"must be a list, not {shown(value)}")
        return None if value is None else list(value)

    def parts(self, key: str) -> list[Part] | None:
        items = self.items(key)
        return None if items is None else [Part(item, f"{self.at(key)}[{index}]") for index, item in enumerate(items)]

    def texts(self, key: str) -> list[str] | None:
        items = self.items(key)
        for index, item in enumerate(items or ()):
            if not isinstance(item, str):
                raise InvalidResource(f"{self.at(key)}[{index}]", f"must be a string, not {shown(item)}")
        return None if items is None else [str(item) for item in items]

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise InvalidResource(self.at(key), f"must be a string, not {shown(value)}")
        return value

    def required_text(self, key: str) -> str:
        return self.required(key, self.text(key) or None)

    def flag(self, key: str) -> bool | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise InvalidResource(self.at(key), f"must be true or false, not {shown(value)}")
        return value

    def number(self, key: str) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not is_moderate(value):
            raise InvalidResource(self.at(key), f"must be a number, not {shown(value)}")
        return float(value)

    def whole(self, key: str, low: int | None = None, high: int | None = None) -> int | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not is_moderate(value):
            raise InvalidResource(self.at(key), f"must be a whole number, not {shown(value)}")
        if low is not None and high is not None and not low <= value <= high:
            raise InvalidResource(self.at(key), f"is {value}; it must be a whole number from {low} to {high}")
        return value

    def choice(self, key: str, choices: Mapping[str, T]) -> T | None:
        value = self.text(key)
        if value is None:
            return None
        if value not in choices:
            raise InvalidResource(self.at(key), f"must be {_either(choices)}, not {shown(value)}")
        return choices[value]

    def required(self, key: str, value: T | None) -> T:
        if value is None:
            raise InvalidResource(self.at(key), "is missing; give it a value")
        return value


def is_moderate(value: float) -> bool:
    """Finite, and far enough from every limit of a double that the checks after this one can compute with it."""
    return abs(value) <= 1e18 if isinstance(value, int) else math.isfinite(value)


def shown(value: object) -> str:
    """A value as errors repeat it, short enough for a condition."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and not is_moderate(value):
        return "a number as large as that"  # Python refuses to print some of them
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _either(choices: Mapping[str, object]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}"


def object_name(where: str, name: str) -> str:
    """Names of other objects in the namespace."""
    if not _OBJECT_NAME.fullmatch(name):
        raise InvalidResource(where, f"{shown(name)} is not a name that Kubernetes allows; use a-z, 0-9, '-' and '.'")
    return name


def own_name(where: str, value: str) -> str:
    """Names that become parts of Redis' keys."""
    try:
        return check_name(where, value)
    except InvalidInput as error:
        raise InvalidResource(where, error.problem) from None


def _time(part: Part, key: str) -> datetime:
    text = part.required_text(key)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidResource(part.at(key), f"must be a time such as 2030-01-31T12:00:00Z, not {shown(text)}")
    return time


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object this is."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What the API server says of every resource."""

    ref: Ref
    generation: int
    created_at: datetime


def read_identity(body: Part) -> Identity:
    """What ``metadata`` says."""
    metadata = body.part("metadata")
    ref = Ref(metadata.required_text("namespace"), metadata.required_text("name"), metadata.required_text("uid"))
    generation = metadata.required("generation", metadata.whole("generation", 0, 1 << 59))
    return Identity(ref, generation, _time(metadata, "creationTimestamp"))
