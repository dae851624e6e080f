"""Where a queue's Redis is, and how the operator and the workers get there.

What belongs here: reading ``spec.redis``, the URL that workers are given, the settings by which the operator itself
connects with what is in the Secret, and how two references differ. What does not: opening a connection.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import msgspec

from headrace.model.errors import InvalidInput
from headrace.queue.settings import DEFAULT_PORT, DEFAULT_SENTINEL_PORT, Mode, RedisSettings

from .reading import InvalidResource, Part, object_name, shown

REDIS_CA_FILE: Final = "/etc/headrace/redis-tls/ca.crt"
"""Where a worker finds the certificate of the authority that signed its Redis' one."""
MAX_HOSTS: Final = 16

_MODES: Final[dict[str, Mode]] = {"Standalone": "standalone", "Sentinel": "sentinel", "Cluster": "cluster"}
_MODE_NAMES: Final = {mode: name for name, mode in _MODES.items()}
_REDIS_FIELDS: Final = {
    "mode": "mode",
    "hosts": "hosts",
    "db": "db",
    "sentinel_service": "sentinelService",
    "tls": "tls.enabled",
    "ca_secret": "tls.caSecretRef",
    "check_hostname": "tls.checkHostname",
    "secret_name": "secretRef.name",
}
_SECRET_KEY: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9_]([A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_SENTINEL_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class SecretKey(NamedTuple):
    """One entry of a Secret in the resource's own namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class RedisReference:
    """What a manifest says about its Redis. It holds no password, so it may be logged and compared."""

    mode: Mode
    hosts: tuple[tuple[str, int], ...]
    """Empty when the Secret has the whole URL."""
    db: int
    sentinel_service: str | None
    tls: bool
    ca_secret: SecretKey | None
    check_hostname: bool
    secret_name: str | None

    def url_without_login(self) -> str | None:
        """The URL that a worker is given beside user and password; None when the Secret has it."""
        if not self.hosts:
            return None
        scheme = ("rediss" if self.tls else "redis") + ("" if self.mode == "standalone" else f"+{self.mode}")
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        path = {"standalone": f"/{self.db}", "sentinel": f"/{self.sentinel_service}/{self.db}", "cluster": ""}
        options = []
        if self.ca_secret is not None:
            options.append(f"tls_ca_file={REDIS_CA_FILE}")
        if not self.check_hostname:
            options.append("tls_check_hostname=false")
        return f"{scheme}://{hosts}{path[self.mode]}{'?' if options else ''}{'&'.join(options)}"


def read_redis_reference(part: Part) -> RedisReference:
    """What ``spec.redis`` says."""
    mode = part.choice("mode", _MODES) or "standalone"
    hosts = tuple(
        _host(f"{part.at('hosts')}[{index}]", text, mode) for index, text in enumerate(part.texts("hosts") or ())
    )
    secret = part.part("secretRef")
    secret_name = object_name(secret.at("name"), secret.required_text("name")) if "secretRef" in part else None
    service = part.text("sentinelService")
    db = part.whole("db", 0, 65_535) or 0
    if hosts:
        _check_hosts(part, mode, hosts, db, service)
    elif secret_name is None:
        raise InvalidResource(
            part.path, "names no server; give it hosts, or a secretRef to a Secret with the key 'url'"
        )
    else:
        for key, is_set in (("db", db != 0), ("sentinelService", service is not None)):
            if is_set:
                raise InvalidResource(part.at(key), "belongs to hosts; write it into the url in the Secret instead")
    tls = part.part("tls")
    enabled = tls.flag("enabled") or False
    check_hostname = tls.flag("checkHostname")
    ca_secret = _ca_secret(tls)
    return RedisReference(
        mode=mode,
        hosts=hosts,
        db=db,
        sentinel_service=service,
        tls=enabled,
        # Without TLS the rest may stay in the manifest, so that one field turns it on and off.
        ca_secret=ca_secret if enabled else None,
        check_hostname=check_hostname is not False or not enabled,
        secret_name=secret_name,
    )


def _ca_secret(tls: Part) -> SecretKey | None:
    if "caSecretRef" not in tls:
        return None
    reference = tls.part("caSecretRef")
    key = reference.text("key") or "ca.crt"
    if not _SECRET_KEY.fullmatch(key):
        raise InvalidResource(reference.at("key"), f"{shown(key)} is not a key that a Secret can have")
    return SecretKey(object_name(reference.at("name"), reference.required_text("name")), key)


def _host(where: str, text: str, mode: Mode) -> tuple[str, int]:
    # The text becomes part of a URL, and is not repeated: somebody may have written a password into it.
    found = _HOST.fullmatch(text)
    port = int(found["port"] or (DEFAULT_SENTINEL_PORT if mode == "sentinel" else DEFAULT_PORT)) if found else 0
    if found is None or not 1 <= port <= 65535:
        raise InvalidResource(
            where, "must be a host or host:port, as in redis:6379; user and password go into a Secret"
        )
    host = found["host"]
    if not host.startswith("["):
        return host, port
    try:
        return str(ipaddress.IPv6Address(host[1:-1])), port
    except ValueError:
        raise InvalidResource(where, "has no IPv6 address within its brackets; write it as in [::1]:6379") from None


def _check_hosts(
    part: Part, mode: Mode, hosts: tuple[tuple[str, int], ...], db: int, sentinel_service: str | None
) -> None:
    if len(hosts) > MAX_HOSTS:
        raise InvalidResource(
            part.at("hosts"), f"names {len(hosts)} servers; at most {MAX_HOSTS} are needed to find all"
        )
    if mode == "standalone" and len(hosts) > 1:
        raise InvalidResource(
            part.at("hosts"), f"names {len(hosts)} servers; set mode to Sentinel or Cluster, or name one server"
        )
    if mode == "cluster" and db != 0:
        raise InvalidResource(part.at("db"), f"is {db}; a Redis Cluster has database 0 only")
    where = part.at("sentinelService")
    if mode != "sentinel":
        if sentinel_service is not None:
            raise InvalidResource(where, "is for mode Sentinel; change the mode, or leave it out")
    elif not sentinel_service:
        raise InvalidResource(where, "is missing; give the name by which the sentinels know the primary")
    elif not _SENTINEL_SERVICE.fullmatch(sentinel_service):
        raise InvalidResource(where, "may have letters, digits, '.', '_' and '-' only")


def redis_settings(
    reference: RedisReference, secret: Mapping[str, str] | None, ca_file: str | None = None
) -> RedisSettings:
    """How the operator itself connects.

    ``secret`` holds the decoded entries of the Secret that the reference names, None when there is no such Secret;
    ``ca_file`` is where the operator has put the authority's certificate. One operator serves many queues, so whatever
    a URL says, it waits no longer and keeps no more connections for one of them than it does by default.
    """
    if reference.secret_name is not None:
        _check_secret(reference.secret_name, secret)
    if reference.ca_secret is not None and ca_file is None:
        name, key = reference.ca_secret
        raise InvalidResource("spec.redis.tls.caSecretRef", f"Secret {name} has no key '{key}'")
    entries = secret or {}
    if not reference.hosts:
        return _settings_from_url(reference, entries, ca_file)
    is_sentinel = reference.mode == "sentinel"
    return RedisSettings(
        mode=reference.mode,
        hosts=reference.hosts,
        db=reference.db,
        tls=reference.tls,
        tls_ca_file=ca_file if reference.ca_secret is not None else None,
        tls_check_hostname=reference.check_hostname,
        sentinel_service=reference.sentinel_service,
        username=entries.get("username") or None,
        password=entries.get("password") or None,
        sentinel_username=entries.get("sentinel-username") or None if is_sentinel else None,
        sentinel_password=entries.get("sentinel-password") or None if is_sentinel else None,
    )


_SECRET_KEYS: Final = ("url", "username", "password", "sentinel-username", "sentinel-password")


def _check_secret(name: str, secret: Mapping[str, str] | None) -> None:
    if secret is None:
        raise InvalidResource("spec.redis.secretRef", f"Secret {name} does not exist; create it in the same namespace")
    for key in _SECRET_KEYS:
        if secret.get(key, "").endswith("\n"):
            # Made with echo. It would be refused as a wrong password, and nobody sees why.
            raise InvalidResource(
                "spec.redis.secretRef", f"Secret {name}, key '{key}' ends with a line break; store it without one"
            )


def _settings_from_url(reference: RedisReference, secret: Mapping[str, str], ca_file: str | None) -> RedisSettings:
    where = f"Secret {reference.secret_name}"
    url = secret.get("url")
    if not url:
        raise InvalidResource("spec.redis.secretRef", f"{where} has no key 'url'")
    try:
        settings = RedisSettings.from_url(url)
    except InvalidInput as error:
        said = error.problem if error.field == "redis_url" else str(error)
        raise InvalidResource("spec.redis.secretRef", f"{where}, key 'url': {said}") from None
    problem = _disagreement(reference, settings)
    if problem is not None:
        raise InvalidResource("spec.redis.secretRef", f"{where}, key 'url': {problem}")
    usual = RedisSettings()
    return msgspec.structs.replace(
        settings,
        tls_ca_file=ca_file if reference.ca_secret is not None else None,
        **{
            option: min(getattr(settings, option), getattr(usual, option))
            for option in ("pool_size", "pool_wait_s", "connect_timeout_s", "command_timeout_s", "confirm_timeout_s")
        },
    )


def _disagreement(reference: RedisReference, settings: RedisSettings) -> str | None:
    """Where a URL and the manifest contradict each other, or where the operator could not follow the workers."""
    if settings.unix_socket is not None:
        return "is a Unix socket, which other pods cannot reach; write it as redis://host:6379/0"
    if settings.tls_cert_file is not None:
        return "asks for a client certificate, which the operator does not have; give it a user and a password"
    if reference.mode not in ("standalone", settings.mode):
        return f"is of mode {settings.mode}, but spec.redis.mode is {reference.mode}; make them the same"
    if reference.tls and not settings.tls:
        return "is without TLS, but spec.redis.tls.enabled is true; begin it with rediss (two s)"
    if reference.ca_secret is not None and settings.tls_ca_file != REDIS_CA_FILE:
        return f"does not use spec.redis.tls.caSecretRef; add the option tls_ca_file={REDIS_CA_FILE}"
    if reference.ca_secret is None and settings.tls_ca_file is not None:
        return "has the option tls_ca_file, but there is no such file; set spec.redis.tls with enabled and caSecretRef"
    if not reference.check_hostname and settings.tls_check_hostname:
        return "checks host names, but spec.redis.tls.checkHostname is false; add the option tls_check_hostname=false"
    return None


def redis_difference(one: RedisReference, other: RedisReference) -> str | None:
    """The first field in which two references differ, as the manifest calls it, with both values."""
    for each in fields(RedisReference):
        ours, theirs = getattr(one, each.name), getattr(other, each.name)
        if ours != theirs:
            return f"spec.redis.{_REDIS_FIELDS[each.name]} ({_plainly(ours)}, {_plainly(theirs)})"
    return None


def _plainly(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, SecretKey):
        return f"{value.name}/{value.key}"
    if isinstance(value, tuple):
        return " ".join(f"{host}:{port}" for host, port in value)
    return str(_MODE_NAMES.get(value, value))  # type: ignore[call-overload]
