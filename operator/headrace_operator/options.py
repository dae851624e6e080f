"""What the operator is told on its command line."""

from __future__ import annotations

import argparse
import json
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model.errors import InvalidConfig
from headrace.model.names import check_name

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_LEASE = "headrace-operator"
DEFAULT_MAX_QUEUES = 500


@dataclass(frozen=True)
class Options:
    """How this operator runs. Errors name the option."""

    namespaces: tuple[str, ...] = ()
    """The namespaces it looks after; none given: all."""
    lease_namespace: str = "default"
    lease_name: str = DEFAULT_LEASE
    identity: str = "operator"
    health_port: int | None = None
    tenants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Which tenants, beside the one that is called like it, a namespace may use."""
    metrics_max_queues: int = DEFAULT_MAX_QUEUES
    """How many TaskQueues have series of their own on ``/metrics``."""
    log_level: str = "info"
    log_style: str = "auto"

    def allows(self, namespace: str, tenant: str) -> bool:
        """Whether a TaskQueue of this namespace may use this tenant's keys."""
        return tenant == namespace or tenant in self.tenants.get(namespace, frozenset())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``headrace operator``."""
    add = parser.add_argument
    add("--namespace", action="append", default=[], metavar="NAME",
        help="look after this namespace only; repeat for several; without it, after all of them")  # fmt: skip
    add(
        "--lease-namespace", metavar="NAME", help="where the leaders' Lease is; by default the operator's own namespace"
    )
    add("--lease-name", default=DEFAULT_LEASE, metavar="NAME", help="what it is called (default: %(default)s)")
    add(
        "--identity",
        metavar="NAME",
        help="what this replica's name in the Lease begins with; by default the host's name",
    )
    add("--health-port", type=int, metavar="PORT", help="serve /livez and /readyz on this port")
    add("--tenants", default="{}", metavar="JSON",
        help='which other tenants a namespace may use, such as {"shop": ["acme"]}, or a file with that')  # fmt: skip
    add("--metrics-max-queues", type=int, default=DEFAULT_MAX_QUEUES, metavar="NUMBER",
        help="how many TaskQueues, the oldest first, have series of their own on /metrics; all others are added up per "
        "namespace (default: %(default)s)")  # fmt: skip
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="how much to log")
    add(
        "--log-style",
        choices=("auto", "json", "console"),
        default="auto",
        help="auto: console on a terminal, else json",
    )


def read(given: argparse.Namespace) -> Options:
    """The parsed command line as options."""
    return Options(
        namespaces=tuple(dict.fromkeys(given.namespace)),
        lease_namespace=given.lease_namespace or _own_namespace(),
        lease_name=given.lease_name,
        # A container that starts anew in its pod is another candidate: its term has another number.
        identity=f"{given.identity or socket.gethostname()}-{secrets.token_hex(3)}",
        health_port=given.health_port,
        tenants=read_tenants(given.tenants),
        metrics_max_queues=_not_negative("--metrics-max-queues", given.metrics_max_queues),
        log_level=given.log_level,
        log_style=given.log_style,
    )


def read_tenants(text: str) -> dict[str, frozenset[str]]:
    """Which tenants are allowed to which namespace, from JSON or from a file of it."""
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidConfig("--tenants", f"is neither JSON nor a file that can be read: {error}") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidConfig("--tenants", f"is not JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(names, list) for names in found.values()):
        raise InvalidConfig("--tenants", 'must be an object of lists, such as {"shop": ["acme"]}')
    return {
        namespace: frozenset(check_name(f"--tenants[{namespace}]", tenant) for tenant in names)
        for namespace, names in found.items()
    }


def _not_negative(option: str, number: int) -> int:
    if number < 0:
        raise InvalidConfig(option, f"must be 0 or more, not {number}")
    return number


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"  # outside of a cluster


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options from a command line of their own."""
    parser = argparse.ArgumentParser(
        prog="headrace operator",
        description="Run the operator: it makes TaskQueues and WorkerPools true.",
        epilog='Example: headrace operator --namespace shop --health-port 8080 --tenants \'{"shop": ["acme"]}\'',
        allow_abbrev=False,
    )
    add_arguments(parser)
    return read(parser.parse_args(arguments))
