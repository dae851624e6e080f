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


class Signature:
    """A handler's parameters, as tasks fill them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = _hints(function)
        parameters = list(inspect.signature(function).parameters.values())
        self.wants_context = bool(parameters) and hints.get(parameters[0].name) is TaskContext
        if self.wants_context:
            parameters = parameters[1:]
        self._signature = inspect.Signature(
            [parameter.replace(annotation=hints.get(parameter.name, Any)) for parameter in parameters]
        )
        self._hinted = {name: hint for name, hint in hints.items() if hint is not Any and name != "return"}

    def check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise `InvalidArguments` when a call with these could not be made."""
        self._bind(args, kwargs)

    def convert(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the type hints want them, or `InvalidArguments` naming the one that does not fit."""
        bound = self._bind(args, kwargs)
        for name, value in bound.arguments.items():
            hint = self._hinted.get(name)
            if hint is None:
                continue
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                converted: Any = tuple(_convert(f"{name}[{i}]", item, hint) for i, item in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                converted = {key: _convert(key, item, hint) for key, item in value.items()}
            else:
                converted = _convert(name, value, hint)
            bound.arguments[name] = converted
        return bound.args, bound.kwargs

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
