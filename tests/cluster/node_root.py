"""The Debian that a node is made of."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import cache, debian, versions
from tests.cluster.host import architecture
from tests.cluster.screen import step

# kind's own list without what needs NFS, iSCSI or FUSE, and the container runtime, which kind builds itself.
_PACKAGES = (
    "bash",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "curl",
    "e2fsprogs",
    "ethtool",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "libseccomp2",
    "mount",
    "nftables",
    "pigz",
    "procps",
    "runc",
    "systemd",
    "util-linux",
)


def key() -> str:
    return cache.fingerprint(
        versions.DEBIAN_SUITE, architecture(), " ".join(_PACKAGES), Path(__file__), Path(debian.__file__)
    )


def node_root() -> Path:
    def build(scratch: Path) -> None:
        with step(f"Making the node's file system from Debian {versions.DEBIAN_SUITE}"):
            debian.bootstrap(scratch / "root", _PACKAGES)

    return cache.ensure("node-root", key(), build) / "root"
