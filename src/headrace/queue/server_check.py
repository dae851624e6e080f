"""The check of a server before the first task is trusted to it: its version and its eviction policy.

Here belongs what a server must be like, and what is said when it is not. The questions are packed here and sent
by whoever opens the connection, so that this module reads answers and talks to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import structlog
from redis.exceptions import ResponseError

from headrace.model.errors import UnsafeBackend

from .driver import as_text, pack
from .driver_errors import is_transient
from .settings import RedisSettings

OLDEST_VERSION: Final = (7, 0)

SERVER_QUESTIONS: Final = (pack("INFO", "server"), pack("CONFIG", "GET", "maxmemory-policy"), pack("INFO", "memory"))
"""What a server is asked; ``check_server`` takes the answers in this order."""

_log = structlog.get_logger(__name__)


def check_server(server: str, answers: Sequence[Any], settings: RedisSettings) -> None:
    """Refuse a server that could lose tasks; warn where it could lose less, or cannot be asked."""
    about, config, memory = answers
    for answer in answers:
        if isinstance(answer, ResponseError) and is_transient(answer, settings):
            raise answer
    _check_version(server, _info(about).get("redis_version"))
    policy = as_text(config[1]) if isinstance(config, list) and len(config) == 2 else None
    _check_policy(server, policy or _info(memory).get("maxmemory_policy"))


def _check_version(server: str, version: str | None) -> None:
    if version is None:
        _log.warning("redis version unreadable", server=server, needed=_dotted(OLDEST_VERSION))
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VERSION:
        raise UnsafeBackend(f"{server}: Redis is {version}; Headrace needs {_dotted(OLDEST_VERSION)} or newer")


def _check_policy(server: str, policy: str | None) -> None:
    if policy is None:
        _log.warning(
            "redis maxmemory-policy unreadable",
            server=server,
            advice="allow CONFIG GET or INFO, or make sure that it is noeviction",
        )
    elif policy.startswith("allkeys-"):
        raise UnsafeBackend(
            f"{server}: maxmemory-policy is {policy}: when memory runs out Redis would throw away waiting tasks; "
            "set maxmemory-policy to noeviction"
        )
    elif policy.startswith("volatile-"):
        _log.warning(
            "redis may evict idempotency keys",
            server=server,
            maxmemory_policy=policy,
            advice="set maxmemory-policy to noeviction",
        )


def _info(answer: Any) -> dict[str, str]:
    """The fields of an INFO answer; none when it was denied."""
    if not isinstance(answer, bytes):
        return {}
    lines = (line.partition(":") for line in answer.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
