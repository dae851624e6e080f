"""Checking arguments: their number and names when they are enqueued, their types before the handler runs.

A bad call should fail where it is made, so the signature is checked at the enqueue. Types are checked where
the values arrive, because that is also where JSON becomes the types that the hints name: dates, UUIDs,
enums, dataclasses, msgspec structs and pydantic models.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.model.errors import InvalidArguments

from .context import TaskContext

_EXACT = (str, int, float, bool)
"""Values of these types, where the hint says the same, need no conversion and no check."""


class Signature:
    """A handler's parameters, as tasks fill them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = _hints(function)
        parameters = list(inspect.signature(function).parameters.values())
        self.wants_context = bool(parameters) and hints.get(parameters[0].name) is TaskContext
        if self.wants_context:
            parameters = parameters[1:]
        self._signature = inspect.Signature(parameters)
        self._hinted = {name: hint for name, hint in hints.items() if hint is not Any and name != "return"}
        # Most handlers have plain parameters only; their calls are checked without the general machinery,
        # which would take longer than everything else around a short task.
        plain = all(parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self._names = [parameter.name for parameter in parameters] if plain else None
        self._hints_by_position = [self._hinted.get(parameter.name) for parameter in parameters]
        self._required = {parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty}

    def check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise `InvalidArguments` when a call with these could not be made."""
        if not self._plainly_fits(args, kwargs):
            self._bind(args, kwargs)

    def convert(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the type hints want them, or `InvalidArguments` naming the one that does not fit."""
        if not kwargs and self._plainly_fits(args, kwargs) and self._are_exact(args):
            return tuple(args), {}
        if self._names is not None and self._plainly_fits(args, kwargs):
            return (
                tuple([self._convert(name, value) for name, value in zip(self._names, args, strict=False)]),
                {name: self._convert(name, value) for name, value in kwargs.items()},
            )
        bound = self._bind(args, kwargs)
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                hint = self._hinted.get(name, Any)
                converted: Any = tuple(_convert(f"{name}[{index}]", item, hint) for index, item in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                hint = self._hinted.get(name, Any)
                converted = {key: _convert(key, item, hint) for key, item in value.items()}
            else:
                converted = self._convert(name, value)
            bound.arguments[name] = converted
        return bound.args, bound.kwargs

    def _plainly_fits(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        if self._names is None or len(args) > len(self._names):
            return False
        if not kwargs:
            return len(args) >= len(self._required)  # parameters without a default come first
        by_position, by_name = self._names[: len(args)], self._names[len(args) :]
        return all(name in by_name for name in kwargs) and self._required.issubset((*by_position, *kwargs))

    def _are_exact(self, args: Sequence[Any]) -> bool:
        for value, hint in zip(args, self._hints_by_position, strict=False):
            if hint is not None and (type(value) is not hint or hint not in _EXACT):
                return False
        return True

    def _convert(self, name: str, value: Any) -> Any:
        hint = self._hinted.get(name)
        if hint is None or (type(value) is hint and hint in _EXACT):
            return value
        return _convert(name, value, hint)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments("arguments", str(error)) from error


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    for name, annotation in inspect.get_annotations(function).items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        # A name that exists for type checkers only, or inside a function: better no check of this one
        # argument than a worker that cannot start.
        with contextlib.suppress(NameError):
            hints |= typing.get_type_hints(one, globalns=scope, include_extras=True)
    return hints


def _convert(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint, dec_hook=_model_from)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at ")
        raise InvalidArguments(f"{name}{path.strip('`').removeprefix('$')}", problem) from error
    except TypeError:
        # A hint that describes nothing JSON can hold (a protocol, a callable): the handler takes it as it is.
        return value


def _model_from(hint: type, value: Any) -> Any:
    """Types that msgspec does not know: pydantic models validate themselves."""
    validate = getattr(hint, "model_validate", None)
    if validate is None:
        raise TypeError(f"cannot check {hint!r}")
    try:
        return validate(value)
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error
