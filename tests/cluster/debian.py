"""Small Debian file systems, by debootstrap."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import versions
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import contained

_TIMEOUT_S = 1200
_APT_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
# Nobody reads manuals in a container, and packages are not added to it either.
_NOT_NEEDED = (
    "etc/apt/sources.list",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)


def mirror_of(apt_sources: str) -> str | None:
    """The first mirror in a list of apt sources, in the new format or the old one."""
    new = re.search(r"^URIs:\s*(\S+)", apt_sources, re.MULTILINE)
    old = re.search(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)", apt_sources, re.MULTILINE)
    found = new or old
    return found.group(1) if found else None


def bootstrap(root: Path, packages: Sequence[str]) -> None:
    """Make the file system with these packages, and without what a container does not need."""
    log = root.with_name(f"{root.name}.log")
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        versions.DEBIAN_SUITE,
        str(root),
        *_own_mirror(),
    ]
    with log.open("w") as output:
        # Contained, so that neither its children nor the /proc that it mounts can stay behind.
        done = subprocess.run(
            contained(command), stdout=output, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False
        )
    if done.returncode != 0:
        raise ClusterProblem(f"debootstrap failed with status {done.returncode}:\n{log.read_text()[-3000:]}")
    log.unlink()
    _empty(root)


def _own_mirror() -> list[str]:
    """The mirror that this machine uses itself, if it is a Debian; else debootstrap knows a public one."""
    release = Path("/etc/os-release")
    if release.exists() and re.search(r"^ID=debian$", release.read_text(), re.MULTILINE):
        for path in map(Path, _APT_SOURCES):
            if path.exists() and (mirror := mirror_of(path.read_text())):
                return [mirror]
    return []


def _empty(root: Path) -> None:
    for path in map(root.joinpath, _NOT_NEEDED):
        if path.is_dir():
            subprocess.run(["find", str(path), "-mindepth", "1", "-delete"], check=True, timeout=60)
        else:
            path.unlink(missing_ok=True)
    # An address of the machine that built this is of no use elsewhere; Docker fills these in.
    for name in ("etc/hostname", "etc/resolv.conf", "etc/machine-id"):
        (root / name).write_text("")
