"""What the driver raises, and what it means in Headrace's own terms.

Here belongs every judgement on an error of the driver: whether it passes, and which ``HeadraceError`` it becomes.
They stand together because the transport, the server check and the opening of a connection must agree on them.
"""

from __future__ import annotations

from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from headrace.model.errors import BackendError, BackendUnavailable, HeadraceError, OutOfMemory, Unconfirmed

from .settings import RedisSettings

DRIVER_ERRORS: Final = (RedisError, RedisClusterException, OSError, RuntimeError)
"""What can come out of the driver when Redis or the way to it is at fault.

RuntimeError is among them because of one of uvloop's (see `_is_closed_transport`); any other is a defect, and
`as_backend_error` raises it as it is.
"""

# Error replies the driver has no class for. All of them pass by themselves or with an operator's help.
# UNBLOCKED: the primary was demoted while it waited for its replicas.
_TRANSIENT_CODES: Final = ("NOREPLICAS", "MISCONF", "BUSY", "UNBLOCKED")
# Those among them that a primary gives which was deposed: its replicas leave it before it knows itself.
_DEPOSED_CODES: Final = ("NOREPLICAS", "UNBLOCKED")


class NotConfirmed(RedisError):
    """Fewer replicas than asked for have the write. Not an error of the driver's, but judged like one."""


def is_wrong_server(error: BaseException) -> bool:
    """Whether the error says, or hints, that somebody else is the primary now."""
    if isinstance(error, ReadOnlyError | AskError | ClusterError | NotConfirmed):
        return True
    return isinstance(error, ResponseError) and str(error).partition(" ")[0] in _DEPOSED_CODES


def is_transient(error: BaseException, settings: RedisSettings) -> bool:
    """Whether trying again later can help: no connection, no primary, or a server that is not ready."""
    if isinstance(error, AskError):  # MOVED as well
        return settings.mode == "cluster"
    if isinstance(error, AuthenticationError | AuthorizationError) or _is_login_refused(error):
        return False
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError | ClusterError | RedisClusterException):
        return True
    if _is_closed_transport(error):
        return True
    if isinstance(error, ReadOnlyError | TryAgainError | NotConfirmed):
        return True
    return isinstance(error, ResponseError) and str(error).partition(" ")[0] in _TRANSIENT_CODES


def as_backend_error(error: Exception, settings: RedisSettings) -> HeadraceError:
    """The error in Headrace's own terms; chain the driver's error to it with ``from``."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, RuntimeError) and not is_transient(error, settings):
        raise error
    server = settings.describe()
    if isinstance(error, OutOfMemoryError):
        return OutOfMemory(
            f"{server}: Redis has reached maxmemory; the task was not stored; "
            "raise maxmemory, or purge finished and dead tasks"
        )
    if isinstance(error, AuthenticationError | AuthorizationError) or _is_login_refused(error):
        return BackendError(f"{server}: Redis refused the login; check user name and password ({error})")
    if isinstance(error, MovedError) and settings.mode != "cluster":
        return BackendError(f"{server} is a node of a Redis Cluster; use redis+cluster:// in the URL ({error})")
    if isinstance(error, NotConfirmed):
        return Unconfirmed(f"{server}: {error}")
    if is_transient(error, settings):
        return BackendUnavailable(f"{server} is unavailable: {str(error) or type(error).__name__}")
    return BackendError(f"{server}: {error}")


def _is_closed_transport(error: BaseException) -> bool:
    # A connection that was reset between two of the driver's steps is closed when it is written to. Where asyncio
    # says so with a ConnectionResetError, uvloop raises a plain RuntimeError with this text.
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


def _is_login_refused(error: BaseException) -> bool:
    # The cluster client wraps whatever its last node said.
    return isinstance(error, RedisClusterException) and isinstance(error.__cause__, AuthenticationError)
