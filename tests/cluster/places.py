"""Where everything of one cluster is: a name decides about folders, socket, bridge and rules.

Nothing here touches the machine; two clusters with different names share nothing but the cache.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.problem import ClusterProblem

# A socket's path has to be short, and a cache folder's path may be long: hence not in the cache.
_RUN = Path("/run/headrace-cluster")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
# kind's pods have 10.244.0.0/16 and its services 10.96.0.0/16; nodes get one of the 256 networks in here.
_NODE_NETWORKS = ipaddress.IPv4Network("10.213.0.0/16")


def cache_root() -> Path:
    """The folder for all that is kept between clusters."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "cluster"


@dataclass(frozen=True)
class Places:
    """The places and names of one cluster."""

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ClusterProblem(
                f"{self.name!r} cannot be a cluster's name: please use up to 30 lower-case letters, digits and "
                "hyphens, beginning with a letter."
            )

    @property
    def folder(self) -> Path:
        """What is kept while the cluster stands, and the images between its lives."""
        return cache_root() / "clusters" / self.name

    @property
    def lock(self) -> Path:
        return self.folder.with_name(f"{self.name}.lock")

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def bin(self) -> Path:
        """A link to the folder with kind, kubectl and helm."""
        return self.folder / "bin"

    @property
    def docker_data(self) -> Path:
        return self.folder / "docker"

    @property
    def docker_log(self) -> Path:
        return self.folder / "dockerd.log"

    @property
    def run(self) -> Path:
        return _RUN / self.name

    @property
    def socket(self) -> Path:
        return self.run / "docker.sock"

    @property
    def docker_host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def network(self) -> str:
        """The name of the nodes' network, of the mark on our firewall rules and of the cgroups' parent."""
        return f"headrace-{self.name}"

    @property
    def bridge(self) -> str:
        """The interface of the nodes' network; Linux allows 15 characters."""
        return f"hr-{self._digest[:10]}"

    def node_subnet(self, taken: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
        """A network for the nodes that overlaps with none of those ``taken``, the same one whenever it is free."""
        occupied = list(taken)
        candidates = list(_NODE_NETWORKS.subnets(new_prefix=24))
        first = int(self._digest, 16) % len(candidates)
        for candidate in candidates[first:] + candidates[:first]:
            if not any(candidate.overlaps(other) for other in occupied):
                return candidate
        raise ClusterProblem(
            f"No network is left for the nodes: all of {_NODE_NETWORKS} is in use (see `ip route`). Take down a "
            "cluster that is no longer needed with: make cluster-down NAME=..."
        )

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()
