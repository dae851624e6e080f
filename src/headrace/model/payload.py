"""What can travel: JSON of bounded size and depth, with no value that JSON would silently change."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from .errors import InvalidPayload

MAX_DEPTH = 100
DEFAULT_MAX_BYTES = 1 << 20

_encoder = msgspec.json.Encoder(decimal_format="string")
_decoder = msgspec.json.Decoder()


def encode(field: str, value: Any) -> str:
    """``value`` as JSON text, or `InvalidPayload` naming the offending part below ``field``."""
    if value is None:
        return "null"
    try:
        raw = _encoder.encode(value)
    except RecursionError:
        raise InvalidPayload(field, f"is nested more than {MAX_DEPTH} levels deep") from None
    except (TypeError, ValueError, OverflowError) as error:
        path, culprit = _find_culprit(field, value)
        raise InvalidPayload(path, f"{culprit} cannot be written as JSON") from error
    # The encoder writes NaN and infinities as null, and depth costs the reader's stack. Both are rare, so
    # the slow walk happens only where the text leaves them possible.
    if b"null" in raw or raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _check_values(field, value, 0)
    return raw.decode()


def decode(text: str | bytes) -> Any:
    """JSON text as plain Python values."""
    return _decoder.decode(text)


def size_of(text: str) -> int:
    """The length in bytes, as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def check_size(field: str, text: str, max_bytes: int) -> None:
    """Raise `InvalidPayload` when ``text`` is larger than ``max_bytes`` in UTF-8."""
    size = size_of(text)
    if size > max_bytes:
        raise payload_too_large(field, size, max_bytes)


def payload_too_large(field: str, size: int, max_bytes: int) -> InvalidPayload:
    """The error for a text of ``size`` bytes where ``max_bytes`` are allowed."""
    return InvalidPayload(field, f"is {size} bytes as JSON; at most {max_bytes} are allowed")


def _check_values(path: str, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidPayload(_shortened(path), f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidPayload(_shortened(path), f"{value} is not a JSON number")
    for name, child in _children(path, value):
        _check_values(name, child, depth + 1)


def _children(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{path}.{key}", child) for key, child in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"{path}[{index}]", child) for index, child in enumerate(value)]
    if isinstance(value, (str, bytes, bytearray, int, float, bool, type(None))):
        return []
    if isinstance(value, msgspec.Struct):
        return [(f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__]
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "__attrs_attrs__"):
        plain = msgspec.to_builtins(value, builtin_types=())
        # Only records can hide a float; other types (dates, UUIDs) become text.
        return [(f"{path}.{key}", child) for key, child in plain.items()] if isinstance(plain, dict) else []
    return []


def _find_culprit(path: str, value: Any) -> tuple[str, str]:
    """Follow ``value`` down to the part that the encoder refuses."""
    for name, child in _children(path, value):
        try:
            _encoder.encode(child)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return _find_culprit(name, child)
    if isinstance(value, str):
        return _shortened(path), "a string with lone surrogates"
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, (str, int, float))), None)
        if odd is not None:
            return _shortened(path), f"a key of type {type(odd).__name__}"
    return _shortened(path), f"a value of type {type(value).__name__}"


def _shortened(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:80]}…{path[-30:]}"
