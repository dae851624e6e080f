"""Where Redis is and how to talk to it, read from one URL.

The forms::

    redis://[user[:password]@]host[:6379][/db]              one server
    rediss://…                                              the same, over TLS
    unix://[user[:password]@]/path/to/redis.sock            one server on this machine
    redis+sentinel://[user[:password]@]h1[:26379],h2/service[/db]
    redis+cluster://[user[:password]@]h1[:6379],h2
    rediss+sentinel://…, rediss+cluster://…                 the same, over TLS

User and password are percent-encoded, IPv6 addresses stand in brackets, and the query carries the rest, for
example ``?pool_size=50&tls_ca_file=/etc/tls/ca.pem&sentinel_password=…`` or ``?confirm_replicas=1``.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from headrace.model.errors import InvalidConfig

Mode = Literal["standalone", "sentinel", "cluster"]

DEFAULT_URL: Final = "redis://localhost:6379/0"
DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379

_SCHEMES: Final[dict[str, tuple[Mode, bool]]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "unix": ("standalone", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_TLS_OPTIONS: Final = ("tls_ca_file", "tls_cert_file", "tls_key_file", "tls_check_hostname")
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a connection needs to know; immutable, and safe to log: no password in ``repr``."""

    mode: Mode = "standalone"
    hosts: tuple[tuple[str, int], ...] = (("localhost", DEFAULT_PORT),)
    unix_socket: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_check_hostname: bool = True
    sentinel_service: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    pool_size: int = 20
    pool_wait_s: float = 4.0
    connect_timeout_s: float = 4.0
    command_timeout_s: float = 10.0
    confirm_replicas: int = 0
    """How many replicas must have a task (or its outcome) before the call returns; 0: the primary is enough."""
    confirm_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        """Settings that contradict themselves are refused here, whether they came from a URL or from code."""
        if not self.hosts and self.unix_socket is None:
            raise InvalidConfig("redis_url", "names no host; write it as redis://host:6379/0")
        if self.mode == "sentinel" and not self.sentinel_service:
            raise InvalidConfig(
                "redis_url",
                "names no Sentinel service; write it after the hosts, as in redis+sentinel://h1,h2/mymaster",
            )
        if self.mode == "cluster" and self.db != 0:
            raise InvalidConfig("redis_url", f"a Redis Cluster has database 0 only; leave /{self.db} out")
        if self.db < 0:
            raise InvalidConfig("redis_url", f"the database must be 0 or more, not {self.db}")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            missing = "tls_key_file" if self.tls_cert_file else "tls_cert_file"
            raise InvalidConfig(missing, "a client certificate needs both tls_cert_file and tls_key_file")
        if self.pool_size < 1:
            raise InvalidConfig("pool_size", f"must be at least 1, not {self.pool_size}")
        if self.confirm_replicas < 0:
            raise InvalidConfig("confirm_replicas", f"must be 0 or more, not {self.confirm_replicas}")
        for option in ("pool_wait_s", "connect_timeout_s", "command_timeout_s", "confirm_timeout_s"):
            value_s = getattr(self, option)
            if not (value_s > 0 and math.isfinite(value_s)):
                raise InvalidConfig(option, f"must be a number of seconds above 0, not {value_s:g}")
        if self.confirm_replicas and self.confirm_timeout_s >= self.command_timeout_s:
            # The connection would be given up before the server has answered how many replicas there are.
            raise InvalidConfig(
                "confirm_timeout_s",
                f"must be below command_timeout_s ({self.command_timeout_s:g}), not {self.confirm_timeout_s:g}",
            )

    @classmethod
    def from_url(cls, url: str) -> RedisSettings:
        """Read a URL in one of the forms above; every mistake is an ``InvalidConfig`` that says what to write."""
        scheme, separator, rest = url.partition("://")
        if not separator or scheme not in _SCHEMES:
            # Without a scheme that we know, any part of the text could be the password: none is repeated.
            raise InvalidConfig("redis_url", f"must start with one of {', '.join(f'{name}://' for name in _SCHEMES)}")
        mode, tls = _SCHEMES[scheme]
        rest, _, query = rest.partition("?")
        if "#" in rest:
            raise InvalidConfig("redis_url", "has a #; inside a user name or password write it as %23")
        login, at, place = rest.rpartition("@")
        found: dict[str, Any] = {"mode": mode, "tls": tls} | (_read_login(login) if at else {})
        if scheme == "unix":
            found |= _read_socket(place)
        else:
            found |= _read_place(place, mode)
        return cls(**found | _read_options(query, mode, tls))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> RedisSettings:
        """What ``HEADRACE_REDIS_URL`` says, by default one server on this machine.

        A login that is kept apart from the URL, as in a Secret of its own, is in ``HEADRACE_REDIS_USERNAME``,
        ``…_PASSWORD``, ``…_SENTINEL_USERNAME`` and ``…_SENTINEL_PASSWORD``; these are not percent-encoded.
        """
        given = os.environ if environment is None else environment
        settings = cls.from_url(given.get("HEADRACE_REDIS_URL") or DEFAULT_URL)
        login = {
            name: value
            for name in ("username", "password", "sentinel_username", "sentinel_password")
            if (value := given.get(f"HEADRACE_REDIS_{name.upper()}"))
        }
        return msgspec.structs.replace(settings, **login) if login else settings

    def describe(self) -> str:
        """The server for people: a URL without passwords and options."""
        user = f"{self.username}@" if self.username else ""
        if self.unix_socket is not None:
            return f"unix://{user}{self.unix_socket}"
        scheme = ("rediss" if self.tls else "redis") + ("" if self.mode == "standalone" else f"+{self.mode}")
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        service = f"/{self.sentinel_service}" if self.mode == "sentinel" else ""
        db = "" if self.mode == "cluster" else f"/{self.db}"
        return f"{scheme}://{user}{hosts}{service}{db}"

    def __repr__(self) -> str:
        return f"RedisSettings({self.describe()})"

    __str__ = __repr__


def _read_login(login: str) -> dict[str, Any]:
    username, _, password = login.partition(":")
    return {"username": unquote(username) or None, "password": unquote(password) or None}


def _read_socket(place: str) -> dict[str, Any]:
    if not place.startswith("/") or place == "/":
        raise InvalidConfig("redis_url", "a Unix socket needs an absolute path, as in unix:///run/redis/redis.sock")
    return {"hosts": (), "unix_socket": unquote(place)}


def _read_place(place: str, mode: Mode) -> dict[str, Any]:
    """The hosts and what follows them: ``/db``, ``/service/db`` or, for a cluster, nothing."""
    netloc, _, path = place.partition("/")
    default_port = DEFAULT_SENTINEL_PORT if mode == "sentinel" else DEFAULT_PORT
    hosts = tuple(_read_host(part, default_port) for part in netloc.split(","))
    if mode == "standalone" and len(hosts) > 1:
        raise InvalidConfig(
            "redis_url", "names several hosts; use redis+sentinel:// or redis+cluster://, or name one host only"
        )
    found: dict[str, Any] = {"hosts": hosts}
    steps = path.split("/") if path else []
    if mode == "sentinel" and steps:
        found["sentinel_service"] = unquote(steps.pop(0))
    if len(steps) > 1:
        raise InvalidConfig(
            "redis_url", "has too many parts after the hosts; write the database last, as in host:6379/0"
        )
    if steps and steps[0]:
        found["db"] = _read_db(steps[0])
    return found


def _read_host(part: str, default_port: int) -> tuple[str, int]:
    if part.startswith("["):
        host, bracket, tail = part[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise InvalidConfig("redis_url", "an IPv6 address must stand in brackets, as in [::1]:6379")
        port = tail[1:]
        has_port = bool(tail)
    else:
        if part.count(":") > 1:
            raise InvalidConfig("redis_url", "an IPv6 address must stand in brackets, as in [::1]:6379")
        host, colon, port = part.partition(":")
        has_port = bool(colon)
    if not host:
        raise InvalidConfig("redis_url", "a host name is missing; write it as redis://host:6379/0")
    if not has_port:
        return host, default_port
    number = _read_digits(port)
    if number is None or not 1 <= number <= 65535:
        # The text is not repeated: in a URL without its @ it is the password.
        raise InvalidConfig("redis_url", "a port must be a number from 1 to 65535, as in redis://host:6379/0")
    return host, number


def _read_db(text: str) -> int:
    db = _read_digits(text)
    if db is None:
        raise InvalidConfig("redis_url", "the database after the last / must be a number, as in redis://host:6379/0")
    return db


def _read_digits(text: str) -> int | None:
    """None for what is no number in plain digits, and for one that is so long that Python refuses to read it."""
    try:
        return int(text) if text.isascii() and text.isdigit() else None
    except ValueError:
        return None


def _read_options(query: str, mode: Mode, tls: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for position, option in enumerate(query.split("&") if query else (), start=1):
        # Not parse_qsl: it takes a + for a blank, and passwords and paths contain a plus more often.
        name, _, text = option.partition("=")
        name, text = unquote(name), unquote(text)
        read = _OPTIONS.get(name)
        if read is None:
            raise InvalidConfig("redis_url", _unknown_option(name, position))
        if name in found:
            raise InvalidConfig(name, "is given twice; keep one")
        if name in _TLS_OPTIONS and not tls:
            raise InvalidConfig(name, "is for TLS; start the URL with rediss:// (two s)")
        if name in _SENTINEL_OPTIONS and mode != "sentinel":
            raise InvalidConfig(name, "is for Sentinel; start the URL with redis+sentinel://")
        found[name] = read(name, text)
    return found


def _unknown_option(name: str, position: int) -> str:
    # The name itself is not repeated: after a ? or & inside a password it is a piece of that.
    close = difflib.get_close_matches(name, _OPTIONS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(_OPTIONS))}"
    return f"option {position} after the ? is unknown; {hint} (inside a password write ? as %3F and & as %26)"


def _text(name: str, text: str) -> str:
    if not text:
        raise InvalidConfig(name, "is empty; give it a value or leave it out")
    return text


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidConfig(name, f"must be a whole number, not {text!r}") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidConfig(name, f"must be a number of seconds, not {text!r}") from None


def _switch(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidConfig(name, f"must be true or false, not {text!r}")
    return text == "true"


_OPTIONS: Final[dict[str, Callable[[str, str], Any]]] = {
    "tls_ca_file": _text,
    "tls_cert_file": _text,
    "tls_key_file": _text,
    "tls_check_hostname": _switch,
    "sentinel_username": _text,
    "sentinel_password": _text,
    "pool_size": _whole_number,
    "pool_wait_s": _seconds,
    "connect_timeout_s": _seconds,
    "command_timeout_s": _seconds,
    "confirm_replicas": _whole_number,
    "confirm_timeout_s": _seconds,
}
