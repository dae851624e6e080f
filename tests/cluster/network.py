"""The nodes' connection to the world: one bridge, one rule that masquerades, two that let packets pass.

dockerd is told to keep its hands off iptables. Two of them on one machine would otherwise empty each other's chains,
and nothing would take the chains away again. Ours are few, carry a comment with the cluster's name, and are found
again by it.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.places import Places
from tests.cluster.process import run, succeeds

_TIMEOUT_S = 30
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def taken_networks() -> Iterator[ipaddress.IPv4Network]:
    """Every network that this machine has a route to."""
    for route in json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"], timeout_s=_TIMEOUT_S)):
        destination = route.get("dst", "default")
        if destination != "default":
            yield ipaddress.IPv4Network(destination, strict=False)


def allow(places: Places, subnet: ipaddress.IPv4Network) -> None:
    """Let the nodes out. A rule that is there already stays as it is."""
    mark = ["-m", "comment", "--comment", places.network]
    for table, chain, rule in (
        ("nat", "POSTROUTING", ["-s", str(subnet), "!", "-d", str(subnet), *mark, "-j", "MASQUERADE"]),
        ("filter", "FORWARD", ["-i", places.bridge, *mark, "-j", "ACCEPT"]),
        ("filter", "FORWARD", ["-o", places.bridge, *mark, "-j", "ACCEPT"]),
    ):
        iptables = ["iptables", "--wait", "-t", table]
        if not succeeds([*iptables, "-C", chain, *rule], timeout_s=_TIMEOUT_S):
            # In front: a machine may drop whatever is forwarded, as it does once it has run Docker.
            run([*iptables, "-I", chain, *rule], timeout_s=_TIMEOUT_S)
    if _FORWARDING.read_text().strip() != "1":
        _FORWARDING.write_text("1")


def forbid(places: Places) -> None:
    """Remove every rule of this cluster."""
    for table in ("nat", "filter"):
        listing = run(["iptables", "--wait", "-t", table, "-S"], timeout_s=_TIMEOUT_S)
        for deletion in deletions(listing, places.network):
            run(["iptables", "--wait", "-t", table, *deletion], timeout_s=_TIMEOUT_S)


def deletions(listing: str, mark: str) -> list[list[str]]:
    """The arguments that delete the rules with this comment, from what ``iptables -S`` printed."""
    rules = [shlex.split(line) for line in listing.splitlines() if line.startswith("-A ")]
    return [["-D", *rule[1:]] for rule in rules if "--comment" in rule and rule[rule.index("--comment") + 1] == mark]


def remove_bridge(places: Places) -> None:
    """A dockerd that was killed leaves its bridge behind."""
    if succeeds(["ip", "link", "show", places.bridge], timeout_s=_TIMEOUT_S):
        run(["ip", "link", "delete", places.bridge], timeout_s=_TIMEOUT_S)
