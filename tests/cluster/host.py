"""What the machine must offer, asked before anything slow begins. Each refusal is one sentence that says what to do."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from tests.cluster import versions
from tests.cluster.places import cache_root
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import succeeds

_PACKAGES_SCRIPT = Path(__file__).parents[2] / "tools" / "system-packages.sh"
_INSTALL_TIMEOUT_S = 600
# Measured, and rounded up: modules 1 GB, Go's build cache 3 GB, binaries, node root and node image 3 GB.
COLD_BUILD_BYTES = 10 * 10**9
# A node's own file systems, and the image in dockerd's store.
WARM_START_BYTES = 4 * 10**9
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """This machine's architecture, as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def docker_runs() -> bool:
    """Whether a Docker that the user started answers."""
    return shutil.which("docker") is not None and succeeds(["docker", "info"], timeout_s=20)


def require_go() -> None:
    if shutil.which("go") is None:
        raise ClusterProblem(
            "Go is missing, and kind, kubectl and helm are built with it: please install Go "
            f"{versions.GO} or newer and put `go` on the PATH."
        )


def require_private_docker(*, system: str | None = None, user_id: int | None = None) -> None:
    """Refuse where no dockerd of our own can run."""
    if (system or platform.system()) != "Linux":
        raise ClusterProblem(
            "No Docker that can pull the node image is running, and one of our own needs Linux: please start Docker, "
            "or name a cluster with HEADRACE_KUBECONFIG."
        )
    if (os.geteuid() if user_id is None else user_id) != 0:
        raise ClusterProblem(
            "No Docker that can pull the node image is running, and one of our own needs root: please start Docker, "
            "run this as root, or name a cluster with HEADRACE_KUBECONFIG."
        )


def require_disk(needed_bytes: int, free_bytes: int | None = None) -> None:
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free if free_bytes is None else free_bytes
    if free < needed_bytes:
        raise ClusterProblem(
            f"{root} has {free / 10**9:.1f} GB left and this needs {needed_bytes / 10**9:.0f} GB: please free some "
            "space, or name a folder on a larger disk with XDG_CACHE_HOME."
        )


def install_packages() -> None:
    """Install what a private dockerd needs from the system, without starting any service."""
    done = subprocess.run(
        [str(_PACKAGES_SCRIPT), "cluster"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterProblem(f"The system packages for a private Docker could not be installed:\n{done.stdout[-3000:]}")
