"""Custom resources as typed values.

The schemas in ``crds/`` refuse most mistakes before they are stored. What is read here is checked all the same: a
resource may have been stored under an older schema, and one that cannot be read must end as a condition on itself, not
as an error that stops the work on all others. So reading raises `InvalidResource` and nothing else.

Fields that are not known are passed over, because a newer schema may have them; only within a worker's template are
they refused, since whatever stands there ends up in a pod.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from posixpath import normpath
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from headrace.model.config import MAX_DURATION_S, Boost, Level, Promotion, QueueConfig, RetryPolicy, Selection
from headrace.model.errors import InvalidInput
from headrace.model.names import check_name
from headrace.queue.settings import DEFAULT_PORT, DEFAULT_SENTINEL_PORT, Mode, RedisSettings

API_VERSION: Final = "headrace.dev/v1alpha1"
POOL_LABEL: Final = "headrace.dev/pool"
REVISION_LABEL: Final = "headrace.dev/revision"

REDIS_CA_FILE: Final = "/etc/headrace/redis-tls/ca.crt"
"""Where a worker finds the certificate of the authority that signed its Redis' one."""

MAX_POOL_NAME_CHARS: Final = 37
"""A pod's name adds the revision and two suffixes of Kubernetes, and must still fit into a hostname."""
MAX_QUEUES: Final = 16
MAX_CONCURRENCY: Final = 1_000
MAX_CAPABILITIES: Final = 16
MAX_REPLICAS: Final = 1_000
MAX_GRACE_SECONDS: Final = 86_400
MAX_HOSTS: Final = 16

DeletionPolicy = Literal["Retain", "Purge"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]

_SELECTIONS: Final[dict[str, Selection]] = {"Strict": "strict", "Weighted": "weighted"}
_MODES: Final[dict[str, Mode]] = {"Standalone": "standalone", "Sentinel": "sentinel", "Cluster": "cluster"}
_DELETION_POLICIES: Final[dict[str, DeletionPolicy]] = {"Retain": "Retain", "Purge": "Purge"}
_PULL_POLICIES: Final[dict[str, PullPolicy]] = {"Always": "Always", "IfNotPresent": "IfNotPresent", "Never": "Never"}

_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SECRET_KEY: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9_]([A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_SENTINEL_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TASKS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_.]*")
_VARIABLE: Final = re.compile(r"[A-Za-z._-][A-Za-z0-9._-]*")

T = TypeVar("T")


class InvalidResource(InvalidInput):
    """Raised when a custom resource, or a Secret it names, cannot be made true as it is; names the manifest's field."""


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


class _Part:
    """One object within a manifest, which knows where it stands. What is absent or null reads as None."""

    def __init__(self, value: object, path: str) -> None:
        if value is not None and not isinstance(value, Mapping):
            raise InvalidResource(path, f"must be an object, not {_shown(value)}")
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

    def part(self, key: str) -> _Part:
        return _Part(self._values.get(key), self.at(key))

    def items(self, key: str) -> list[object] | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, (list, tuple)):
            raise InvalidResource(self.at(key), f"must be a list, not {_shown(value)}")
        return None if value is None else list(value)

    def parts(self, key: str) -> list[_Part] | None:
        items = self.items(key)
        return None if items is None else [_Part(item, f"{self.at(key)}[{index}]") for index, item in enumerate(items)]

    def texts(self, key: str) -> list[str] | None:
        items = self.items(key)
        for index, item in enumerate(items or ()):
            if not isinstance(item, str):
                raise InvalidResource(f"{self.at(key)}[{index}]", f"must be a string, not {_shown(item)}")
        return None if items is None else [str(item) for item in items]

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise InvalidResource(self.at(key), f"must be a string, not {_shown(value)}")
        return value

    def required_text(self, key: str) -> str:
        return self.required(key, self.text(key) or None)

    def flag(self, key: str) -> bool | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise InvalidResource(self.at(key), f"must be true or false, not {_shown(value)}")
        return value

    def number(self, key: str) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not _is_moderate(value):
            raise InvalidResource(self.at(key), f"must be a number, not {_shown(value)}")
        return float(value)

    def whole(self, key: str, low: int | None = None, high: int | None = None) -> int | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not _is_moderate(value):
            raise InvalidResource(self.at(key), f"must be a whole number, not {_shown(value)}")
        if low is not None and high is not None and not low <= value <= high:
            raise InvalidResource(self.at(key), f"is {value}; it must be a whole number from {low} to {high}")
        return value

    def choice(self, key: str, choices: Mapping[str, T]) -> T | None:
        value = self.text(key)
        if value is None:
            return None
        if value not in choices:
            raise InvalidResource(self.at(key), f"must be {_either(choices)}, not {_shown(value)}")
        return choices[value]

    def required(self, key: str, value: T | None) -> T:
        if value is None:
            raise InvalidResource(self.at(key), "is missing; give it a value")
        return value


def _is_moderate(value: float) -> bool:
    """Finite, and far enough from every limit of a double that the checks after this one can compute with it."""
    return abs(value) <= 1e18 if isinstance(value, int) else math.isfinite(value)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and not _is_moderate(value):
        return "a number as large as that"  # Python refuses to print some of them
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _either(choices: Mapping[str, object]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}"


def _object_name(where: str, name: str) -> str:
    if not _OBJECT_NAME.fullmatch(name):
        raise InvalidResource(where, f"{_shown(name)} is not a name that Kubernetes allows; use a-z, 0-9, '-' and '.'")
    return name


def _own_name(where: str, value: str) -> str:
    """Names that become parts of Redis' keys."""
    try:
        return check_name(where, value)
    except InvalidInput as error:
        raise InvalidResource(where, error.problem) from None


def _time(part: _Part, key: str) -> datetime:
    text = part.required_text(key)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidResource(part.at(key), f"must be a time such as 2030-01-31T12:00:00Z, not {_shown(text)}")
    return time


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object this is."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Identity:
    ref: Ref
    generation: int
    created_at: datetime


def _identity(body: _Part) -> _Identity:
    metadata = body.part("metadata")
    ref = Ref(metadata.required_text("namespace"), metadata.required_text("name"), metadata.required_text("uid"))
    generation = metadata.required("generation", metadata.whole("generation", 0, 1 << 59))
    return _Identity(ref, generation, _time(metadata, "creationTimestamp"))


# ── TaskQueue ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TaskQueueResource:
    """A TaskQueue, checked: `config` is what is published to Redis."""

    ref: Ref
    generation: int
    created_at: datetime
    tenant: str
    queue_name: str
    """What the queue is called in Redis; the resource itself may be called otherwise."""
    config: QueueConfig
    redis: RedisReference
    paused: bool | None
    """None: a pause that somebody made by other means is left alone."""
    deletion_policy: DeletionPolicy

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> TaskQueueResource:
        """Read a manifest as the API server returns it; raises `InvalidResource`, and nothing else."""
        whole = _Part(body, "")
        identity = _identity(whole)
        spec = whole.part("spec")
        queue, tenant = spec.text("queue"), spec.text("tenant")
        queue_field = "metadata.name" if queue is None else "spec.queue"
        queue_name = _own_name(queue_field, identity.ref.name if queue is None else queue)
        return cls(
            ref=identity.ref,
            generation=identity.generation,
            created_at=identity.created_at,
            tenant=_own_name("spec.tenant", identity.ref.namespace if tenant is None else tenant),
            queue_name=queue_name,
            config=_queue_config(spec, queue_name, queue_field),
            redis=_redis_reference(spec.part("redis")),
            paused=spec.flag("paused"),
            deletion_policy=spec.choice("deletionPolicy", _DELETION_POLICIES) or "Retain",
        )


_NUMBERS: Final[tuple[tuple[str, str, str, type[int] | type[float]], ...]] = (
    # section, field of the manifest, field of QueueConfig, what it is
    ("promotion", "intervalSeconds", "promotion_interval_s", float),
    ("lease", "seconds", "lease_s", float),
    ("lease", "heartbeatSeconds", "heartbeat_s", float),
    ("lease", "workerDeadAfterSeconds", "worker_dead_after_s", float),
    ("lease", "maxCrashes", "max_crashes", int),
    ("lease", "repairLimit", "repair_limit", int),
    ("retry", "baseSeconds", "retry.base_s", float),
    ("retry", "maxSeconds", "retry.max_s", float),
    ("retry", "jitter", "retry.jitter", float),
    ("retry", "timeoutFactor", "retry.timeout_factor", float),
    ("retention", "resultSeconds", "result_retention_s", float),
    ("retention", "deadLetterSeconds", "dead_letter_retention_s", float),
    ("retention", "idempotencySeconds", "idempotency_window_s", float),
    ("retention", "maxEvents", "events_max", int),
    ("limits", "maxPayloadBytes", "max_payload_bytes", int),
    ("limits", "maxDelaySeconds", "max_delay_s", float),
)
_MANIFEST_FIELDS: Final = {
    "levels": "spec.levels",
    "default_level": "spec.defaultLevel",
    **{name: f"spec.{section}.{key}" for section, key, name, _ in _NUMBERS},
}
_MANIFEST_LISTS: Final = {
    "levels": "spec.levels",
    "promotions": "spec.levels",
    "boosts": "spec.antiStarvation.boosts",
}
_MANIFEST_ITEMS: Final = {
    ("levels", "name"): "name",
    ("levels", "weight"): "weight",
    ("levels", "max_retries"): "maxRetries",
    ("levels", "timeout_s"): "timeoutSeconds",
    ("promotions", "source"): "name",
    ("promotions", "target"): "promoteTo",
    ("promotions", "after_s"): "promoteAfterSeconds",
    ("promotions", "batch"): "promoteBatch",
    ("boosts", "after_s"): "afterSeconds",
    ("boosts", "factor"): "factor",
}
_ITEM: Final = re.compile(r"(\w+)\[(\d+)\]\.(\w+)")


def _queue_config(spec: _Part, name: str, name_field: str) -> QueueConfig:
    """`QueueConfig` is the one place that checks the rules of a queue; here its errors get the manifest's names."""
    found: dict[str, Any] = {"name": name}
    for section, key, target, kind in _NUMBERS:
        part = spec.part(section)
        value = part.whole(key) if kind is int else part.number(key)
        if value is not None:
            found[target] = value
    if found.get("dead_letter_retention_s") == 0:
        found["dead_letter_retention_s"] = None  # which keeps them for ever
    retry = {key.removeprefix("retry."): found.pop(key) for key in list(found) if key.startswith("retry.")}
    found["retry"] = RetryPolicy(**retry)
    found["default_level"] = spec.text("defaultLevel") or ""
    found["selection"] = spec.choice("selection", _SELECTIONS) or "strict"
    found["boosts"] = _boosts(spec.part("antiStarvation"))
    levels = spec.parts("levels")
    promoted: list[int] = []
    if levels is not None:
        found["levels"] = tuple(_level(part) for part in levels)
        # The lowest first: one round then lifts a task that is due on several levels all the way.
        promoted = [index for index, part in enumerate(levels) if "promoteAfterSeconds" in part][::-1]
        found["promotions"] = tuple(_promotion(levels, index) for index in promoted)
    try:
        return QueueConfig(**found)
    except InvalidInput as error:
        raise _in_manifest_terms(error, name_field, promoted) from None


def _level(part: _Part) -> Level:
    read: dict[str, Any] = {
        "weight": part.number("weight"),
        "max_retries": part.whole("maxRetries"),
        "timeout_s": part.number("timeoutSeconds"),
    }
    if "promoteAfterSeconds" not in part:
        for key in ("promoteTo", "promoteBatch"):
            if key in part:
                raise InvalidResource(part.at(key), "is without effect; set promoteAfterSeconds too, or leave it out")
    return Level(part.required_text("name"), **{key: value for key, value in read.items() if value is not None})


def _promotion(levels: Sequence[_Part], index: int) -> Promotion:
    part = levels[index]
    after_s = part.required("promoteAfterSeconds", part.number("promoteAfterSeconds"))
    target = part.text("promoteTo")
    if target is None:
        if index == 0:
            raise InvalidResource(
                part.at("promoteAfterSeconds"), "is on the highest level, above which there is none; leave it out"
            )
        target = levels[index - 1].required_text("name")
    batch = part.whole("promoteBatch")
    given = {} if batch is None else {"batch": batch}
    return Promotion(part.required_text("name"), target, after_s, **given)


def _boosts(part: _Part) -> tuple[Boost, ...]:
    return tuple(
        Boost(
            boost.required("afterSeconds", boost.number("afterSeconds")),
            boost.required("factor", boost.number("factor")),
        )
        for boost in part.parts("boosts") or ()
    )


def _in_manifest_terms(error: InvalidInput, name_field: str, promoted: Sequence[int]) -> InvalidResource:
    """``promoted`` says for each promotion on which level it stands."""
    problem = error.problem
    if error.field == "heartbeat_s":
        problem = problem.replace("lease_s", "spec.lease.seconds")
    if error.field == "name":
        return InvalidResource(name_field, problem)
    item = _ITEM.fullmatch(error.field)
    if item is None:
        return InvalidResource(_MANIFEST_FIELDS.get(error.field, "spec"), problem)
    group, index, leaf = item[1], int(item[2]), item[3]
    if group == "promotions":
        index = promoted[index]
    return InvalidResource(f"{_MANIFEST_LISTS[group]}[{index}].{_MANIFEST_ITEMS[group, leaf]}", problem)


# ── where Redis is ───────────────────────────────────────────────────────────────────────────────────


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


def _redis_reference(part: _Part) -> RedisReference:
    mode = part.choice("mode", _MODES) or "standalone"
    hosts = tuple(
        _host(f"{part.at('hosts')}[{index}]", text, mode) for index, text in enumerate(part.texts("hosts") or ())
    )
    secret = part.part("secretRef")
    secret_name = _object_name(secret.at("name"), secret.required_text("name")) if "secretRef" in part else None
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


def _ca_secret(tls: _Part) -> SecretKey | None:
    if "caSecretRef" not in tls:
        return None
    reference = tls.part("caSecretRef")
    key = reference.text("key") or "ca.crt"
    if not _SECRET_KEY.fullmatch(key):
        raise InvalidResource(reference.at("key"), f"{_shown(key)} is not a key that a Secret can have")
    return SecretKey(_object_name(reference.at("name"), reference.required_text("name")), key)


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
    part: _Part, mode: Mode, hosts: tuple[tuple[str, int], ...], db: int, sentinel_service: str | None
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
    except ValueError:
        raise InvalidResource("spec.redis.secretRef", f"{where}, key 'url': is not the URL of a Redis") from None
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


# ── WorkerPool ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class WorkerPoolResource:
    """A WorkerPool, checked."""

    ref: Ref
    generation: int
    created_at: datetime
    queues: tuple[str, ...]
    """Names of TaskQueues, not of queues in Redis."""
    image: str
    image_pull_policy: PullPolicy
    tasks: str
    concurrency: int
    capabilities: tuple[str, ...]
    min_replicas: int
    max_replicas: int
    replicas: int | None
    """As somebody fixed it, perhaps outside of the bounds: see `within_bounds`."""
    idle_seconds: float
    target_drain_seconds: float
    grace_seconds: int | None
    """None: derived from the queues."""
    paused: bool
    template: Mapping[str, Any] = field(hash=False)
    """Nothing in it but what the contract of a worker's template allows, so it can be put into a pod."""

    def within_bounds(self, replicas: int) -> int:
        """The nearest number of replicas that the pool may have."""
        return min(max(replicas, self.min_replicas), self.max_replicas)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> WorkerPoolResource:
        """Read a manifest as the API server returns it; raises `InvalidResource`, and nothing else."""
        whole = _Part(body, "")
        identity = _identity(whole)
        if len(identity.ref.name) > MAX_POOL_NAME_CHARS:
            raise InvalidResource(
                "metadata.name",
                f"is {len(identity.ref.name)} characters long; at most {MAX_POOL_NAME_CHARS} are allowed",
            )
        if "." in identity.ref.name:
            raise InvalidResource("metadata.name", "becomes part of host names and cannot have dots; write '-' instead")
        spec = whole.part("spec")
        minimum = spec.whole("minReplicas", 0, MAX_REPLICAS) or 0
        maximum = spec.whole("maxReplicas", 0, MAX_REPLICAS)
        maximum = 10 if maximum is None else maximum
        if minimum > maximum:
            raise InvalidResource(
                "spec.minReplicas", f"is {minimum}, above maxReplicas ({maximum}); change one of them"
            )
        return cls(
            ref=identity.ref,
            generation=identity.generation,
            created_at=identity.created_at,
            queues=_queue_names(spec),
            image=_image(spec),
            image_pull_policy=spec.choice("imagePullPolicy", _PULL_POLICIES) or "IfNotPresent",
            tasks=_tasks(spec),
            concurrency=spec.whole("concurrency", 1, MAX_CONCURRENCY) or 5,
            capabilities=_capabilities(spec),
            min_replicas=minimum,
            max_replicas=maximum,
            replicas=spec.whole("replicas", 0, MAX_REPLICAS),
            idle_seconds=_seconds(spec, "idleSeconds", 120.0, may_be_zero=True),
            target_drain_seconds=_seconds(spec, "targetDrainSeconds", 30.0, may_be_zero=False),
            grace_seconds=spec.whole("graceSeconds", 0, MAX_GRACE_SECONDS),
            paused=spec.flag("paused") or False,
            template=_template(spec.part("template")),
        )


def common_backend(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource]) -> tuple[str, RedisReference]:
    """The tenant and the Redis of the pool's queues. A worker has one of each, so they must be the same for all."""
    by_name = {queue.ref.name: queue for queue in queues}
    for index, name in enumerate(pool.queues):
        if name not in by_name:
            raise InvalidResource(
                f"spec.queues[{index}]", f"TaskQueue {name} does not exist; create it, or correct the name"
            )
    first, *others = (by_name[name] for name in pool.queues)
    for other in others:
        difference = _difference(first, other)
        if difference is not None:
            raise InvalidResource(
                "spec.queues",
                f"TaskQueues {first.ref.name} and {other.ref.name} differ in {difference}; "
                "a worker has one connection, so give each of them a pool of its own",
            )
    names: dict[str, str] = {}
    for queue in (first, *others):
        if queue.queue_name in names:
            raise InvalidResource(
                "spec.queues",
                f"TaskQueues {names[queue.queue_name]} and {queue.ref.name} are both "
                f"queue {queue.queue_name}; keep one",
            )
        names[queue.queue_name] = queue.ref.name
    return first.tenant, first.redis


def _difference(one: TaskQueueResource, other: TaskQueueResource) -> str | None:
    if one.tenant != other.tenant:
        return f"spec.tenant ({one.tenant}, {other.tenant})"
    for each in fields(RedisReference):
        ours, theirs = getattr(one.redis, each.name), getattr(other.redis, each.name)
        if ours != theirs:
            return f"spec.redis.{_REDIS_FIELDS[each.name]} ({_plainly(ours)}, {_plainly(theirs)})"
    return None


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
_MODE_NAMES: Final = {mode: name for name, mode in _MODES.items()}


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


def _queue_names(spec: _Part) -> tuple[str, ...]:
    names = spec.required("queues", spec.texts("queues"))
    if not 1 <= len(names) <= MAX_QUEUES:
        raise InvalidResource("spec.queues", f"has {len(names)} names; a pool serves 1 to {MAX_QUEUES} TaskQueues")
    for index, name in enumerate(names):
        _object_name(f"spec.queues[{index}]", name)
    _refuse_twice("spec.queues", names)
    return tuple(names)


def _refuse_twice(where: str, names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidResource(f"{where}[{index}]", f"{_shown(name)} appears twice; keep one")


def _image(spec: _Part) -> str:
    image = spec.required_text("image")
    if any(character.isspace() for character in image):
        raise InvalidResource("spec.image", "has a blank in it; write it as in shop/worker:1.0")
    return image


def _tasks(spec: _Part) -> str:
    tasks = spec.required_text("tasks")
    if not _TASKS.fullmatch(tasks):
        raise InvalidResource("spec.tasks", f"{_shown(tasks)} is not module:attribute; write it as in shop.tasks:app")
    return tasks


def _capabilities(spec: _Part) -> tuple[str, ...]:
    names = spec.texts("capabilities") or []
    if len(names) > MAX_CAPABILITIES:
        raise InvalidResource("spec.capabilities", f"has {len(names)} names; a worker has at most {MAX_CAPABILITIES}")
    for index, name in enumerate(names):
        _own_name(f"spec.capabilities[{index}]", name)
    _refuse_twice("spec.capabilities", names)
    return tuple(names)


def _seconds(spec: _Part, key: str, default_s: float, *, may_be_zero: bool) -> float:
    value_s = spec.number(key)
    if value_s is None:
        return default_s
    if value_s < 0 or value_s > MAX_DURATION_S or (value_s == 0 and not may_be_zero):
        least = "at least" if may_be_zero else "above"
        raise InvalidResource(spec.at(key), f"is {value_s:g}; it must be {least} 0 and at most {MAX_DURATION_S:g}")
    return value_s


# ── a worker's template ──────────────────────────────────────────────────────────────────────────────
#
# A template is copied field by field. What has no place here cannot come into a pod, whatever was stored.

_Reader = Callable[[_Part, str], Any]
_Shape = Mapping[str, _Reader]

_text: Final = _Part.text
_required_text: Final = _Part.required_text
_flag: Final = _Part.flag
_QUANTITY: Final = ((str, int, float), "a quantity such as 500m or 256Mi")


def _mode(part: _Part, key: str) -> int | None:
    return part.whole(key, 0, 0o777)


def _toleration_seconds(part: _Part, key: str) -> int | None:
    return part.whole(key, 0, 1 << 59)


def _quantity(part: _Part, key: str) -> str | int | float | None:
    """Text such as 500m; a plain number is as good."""
    quantity: str | int | float | None = _of_kind(part, key, *_QUANTITY) if key in part else None
    return quantity


def _quantities(part: _Part, key: str) -> dict[str, str | int | float] | None:
    return _mapping(part, key, *_QUANTITY)


def _texts(part: _Part, key: str) -> dict[str, str] | None:
    return _mapping(part, key, (str,), "a string")


def _mapping(part: _Part, key: str, kinds: tuple[type, ...], what: str) -> dict[str, Any] | None:
    if key not in part:
        return None
    inner = part.part(key)
    return {name: _of_kind(inner, name, kinds, what) for name in inner}


def _of_kind(part: _Part, key: str, kinds: tuple[type, ...], what: str) -> Any:
    value = part.value(key)
    is_wild_number = isinstance(value, (int, float)) and (isinstance(value, bool) or not _is_moderate(value))
    if not isinstance(value, kinds) or is_wild_number:
        raise InvalidResource(part.at(key), f"must be {what}, not {_shown(value)}")
    return value


def _object(shape: _Shape, *, one_of: Sequence[str] = ()) -> _Reader:
    def read(part: _Part, key: str) -> dict[str, Any] | None:
        return _shaped(part.part(key), shape, one_of) if key in part else None

    return read


def _list(shape: _Shape, *, one_of: Sequence[str] = ()) -> _Reader:
    def read(part: _Part, key: str) -> list[dict[str, Any]] | None:
        parts = part.parts(key)
        return None if parts is None else [_shaped(item, shape, one_of) for item in parts]

    return read


def _shaped(part: _Part, shape: _Shape, one_of: Sequence[str] = ()) -> dict[str, Any]:
    for key in part:
        if key not in shape:
            raise InvalidResource(part.at(key), f"cannot be set on a worker; possible here: {', '.join(shape)}")
    given = [key for key in one_of if key in part]
    if one_of and len(given) != 1:
        raise InvalidResource(part.path, f"must have exactly one of {', '.join(one_of)}")
    read = {key: reader(part, key) for key, reader in shape.items()}
    return {key: value for key, value in read.items() if value is not None}


_NAME: Final[_Shape] = {"name": _required_text}
_KEY: Final[_Shape] = {**_NAME, "key": _required_text, "optional": _flag}
_VARIABLE_SOURCES: Final[_Shape] = {
    "secretKeyRef": _object(_KEY),
    "configMapKeyRef": _object(_KEY),
    "fieldRef": _object({"fieldPath": _required_text}),
}
_VOLUME_SOURCES: Final[_Shape] = {
    "configMap": _object({**_NAME, "optional": _flag, "defaultMode": _mode}),
    "secret": _object({"secretName": _required_text, "optional": _flag, "defaultMode": _mode}),
    "emptyDir": _object({"medium": _text, "sizeLimit": _quantity}),
    "persistentVolumeClaim": _object({"claimName": _required_text, "readOnly": _flag}),
}
_ENV_FROM_SOURCES: Final[_Shape] = {"secretRef": _object(_NAME), "configMapRef": _object(_NAME)}
_TEMPLATE: Final[_Shape] = {
    "labels": _texts,
    "annotations": _texts,
    "resources": _object({"requests": _quantities, "limits": _quantities}),
    "env": _list({**_NAME, "value": _text, "valueFrom": _object(_VARIABLE_SOURCES, one_of=tuple(_VARIABLE_SOURCES))}),
    "envFrom": _list(_ENV_FROM_SOURCES, one_of=tuple(_ENV_FROM_SOURCES)),
    "nodeSelector": _texts,
    "tolerations": _list(
        {"key": _text, "operator": _text, "value": _text, "effect": _text, "tolerationSeconds": _toleration_seconds}
    ),
    "priorityClassName": _text,
    "imagePullSecrets": _list(_NAME),
    "serviceAccountName": _text,
    "volumes": _list({**_NAME, **_VOLUME_SOURCES}, one_of=tuple(_VOLUME_SOURCES)),
    "volumeMounts": _list({**_NAME, "mountPath": _required_text, "readOnly": _flag, "subPath": _text}),
}

OWN_VOLUMES: Final = ("headrace-tmp", "headrace-redis-tls")
_OWN_LABELS: Final = ("headrace.dev/", "app.kubernetes.io/", "kubernetes.io/")
_OWN_PREFIXES: Final = {
    "labels": _OWN_LABELS,
    # Which pods go first is the scaler's decision, and it says so in an annotation.
    "annotations": (*_OWN_LABELS, "controller.kubernetes.io/", "container.apparmor.security.beta.kubernetes.io/"),
}


def _template(part: _Part) -> dict[str, Any]:
    template = _shaped(part, _TEMPLATE)
    for kind, prefixes in _OWN_PREFIXES.items():
        for name in template.get(kind, ()):
            if name.startswith(prefixes):
                raise InvalidResource(f"{part.at(kind)}.{name}", "is set by the operator; choose a prefix of your own")
    _check_variables(part.at("env"), template.get("env", []))
    _refuse_twice_by(part.at("imagePullSecrets"), template.get("imagePullSecrets", []), "name")
    _check_volumes(part, template.get("volumes", []), template.get("volumeMounts", []))
    for key in ("serviceAccountName", "priorityClassName"):
        if key in template:
            _object_name(part.at(key), template[key])
    if template.get("priorityClassName", "").startswith("system-"):
        raise InvalidResource(part.at("priorityClassName"), "is for the cluster's own pods; name one made for workers")
    return template


def _check_variables(where: str, variables: Sequence[Mapping[str, Any]]) -> None:
    for index, variable in enumerate(variables):
        name = variable["name"]
        if not _VARIABLE.fullmatch(name):
            raise InvalidResource(
                f"{where}[{index}].name", f"{_shown(name)} cannot name a variable; use A-Z, 0-9 and '_'"
            )
        if name.startswith("HEADRACE_"):
            raise InvalidResource(f"{where}[{index}].name", f"{name} is set by the operator; choose another name")
        if "value" in variable and "valueFrom" in variable:
            raise InvalidResource(f"{where}[{index}]", "has both value and valueFrom; keep one")
    _refuse_twice_by(where, variables, "name")


def _check_volumes(part: _Part, volumes: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]]) -> None:
    _refuse_twice_by(part.at("volumes"), volumes, "name")
    names = [volume["name"] for volume in volumes]
    for index, name in enumerate(names):
        if name in OWN_VOLUMES:
            raise InvalidResource(
                f"{part.at('volumes')}[{index}].name", f"{name} is the operator's; choose another name"
            )
    for index, mount in enumerate(mounts):
        where = f"{part.at('volumeMounts')}[{index}]"
        path = mount["mountPath"]
        if mount["name"] not in names:
            raise InvalidResource(f"{where}.name", f"{_shown(mount['name'])} is none of the volumes; add it to them")
        if not path.startswith("/") or ":" in path or normpath(path) != path or path.startswith("//") or path == "/":
            raise InvalidResource(
                f"{where}.mountPath", f"{_shown(path)} is no place for a volume; write it as in /data"
            )
        if normpath(path) == "/tmp" or f"{normpath(path)}/".startswith("/etc/headrace/"):
            raise InvalidResource(f"{where}.mountPath", f"{_shown(path)} is the operator's; mount it elsewhere")
        if ".." in mount.get("subPath", "").split("/") or mount.get("subPath", "").startswith("/"):
            raise InvalidResource(f"{where}.subPath", "leaves the volume; write a path below its root")
    _refuse_twice_by(part.at("volumeMounts"), mounts, "mountPath")


def _refuse_twice_by(where: str, items: Sequence[Mapping[str, Any]], key: str) -> None:
    # Server-side apply merges these lists by that key, and refuses the whole object otherwise.
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item[key] in seen:
            raise InvalidResource(f"{where}[{index}].{key}", f"{_shown(item[key])} appears twice; keep one")
        seen.add(item[key])
