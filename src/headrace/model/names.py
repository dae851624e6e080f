"""What may be called what.

Tenants, queues, levels, capabilities and workers become parts of Redis keys and, later, of Kubernetes
objects, so they keep to the alphabet that both accept. A name that passes can never reach another
tenant's keys: it has no braces, slashes or colons.
"""

from __future__ import annotations

import re

from .errors import InvalidName

MAX_NAME_CHARS = 63
MAX_TASK_TYPE_CHARS = 200
MAX_IDEMPOTENCY_KEY_CHARS = 255

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_TASK_TYPE = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?")


def check_name(field: str, value: object) -> str:
    """Return ``value`` if it is a proper name, else raise `InvalidName` for ``field``."""
    if not isinstance(value, str):
        raise InvalidName(field, f"must be a string, not {type(value).__name__}")
    if len(value) > MAX_NAME_CHARS:
        raise InvalidName(field, f"is {len(value)} characters long; at most {MAX_NAME_CHARS} are allowed")
    if not _NAME.fullmatch(value):
        raise InvalidName(
            field,
            f"{value!r} is not allowed; use lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit",
        )
    return value


def check_task_type(field: str, value: object) -> str:
    """Return ``value`` if it can name a kind of task. Function names fit, so underscores are allowed."""
    if not isinstance(value, str) or len(value) > MAX_TASK_TYPE_CHARS or not _TASK_TYPE.fullmatch(value):
        shown = repr(value)[:80]
        raise InvalidName(
            field, f"{shown} is not allowed; use up to {MAX_TASK_TYPE_CHARS} letters, digits, '_', '.', ':' and '-'"
        )
    return value


def check_idempotency_key(field: str, value: object) -> str:
    """Return ``value`` if it can serve as an idempotency key: any printable text of bounded length."""
    if not isinstance(value, str):
        raise InvalidName(field, f"must be a string, not {type(value).__name__}")
    if not value or len(value) > MAX_IDEMPOTENCY_KEY_CHARS or not value.isprintable():
        raise InvalidName(field, f"must be 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable characters")
    return value


def capability_set(field: str, capabilities: object) -> str:
    """The canonical text of a set of capabilities: sorted, unique, joined by commas."""
    if isinstance(capabilities, str) or not hasattr(capabilities, "__iter__"):
        raise InvalidName(field, "must be a collection of names, such as ['gpu']")
    return ",".join(sorted({check_name(field, capability) for capability in capabilities}))
