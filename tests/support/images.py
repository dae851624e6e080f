"""Building our images and bringing them into a test cluster: ``make images`` and ``make images-load``.

On a machine whose Docker pulls images, they are built on the official Python image. With a private dockerd (see
`tests.cluster`) they are built on our own Debian, and pip in the build gets the certificates that this machine trusts.
Docker's cache makes a build that changes nothing a matter of a second.
"""

from __future__ import annotations

import argparse
import os
import ssl
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import debian, host, lifecycle
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run
from tests.cluster.screen import say, step

REPOSITORY = Path(__file__).parents[2]
OPERATOR, WORKER, REDIS = "headrace:dev", "headrace-worker:dev", "headrace-redis:dev"
ALL = (OPERATOR, WORKER, REDIS)
PROMETHEUS = "headrace-prometheus:dev"
"""Few tests need it, so it is not among those that are always built."""

_BUILD_TIMEOUT_S = 1200.0
_LOAD_TIMEOUT_S = 600.0
_DOCKERFILES = {OPERATOR: Path("Dockerfile"), WORKER: Path("worker_image/Dockerfile")}
_OF_DEBIAN = {REDIS: Path("tests/redis_image"), PROMETHEUS: Path("tests/prometheus_image")}
_BUILD_IMAGE = "localhost/headrace-build"


def build(name: str) -> str:
    """Build every image with the Docker of the cluster ``name``, and tell which base they have."""
    cluster = _docker_of(name)
    env = {"DOCKER_BUILDKIT": "0", **cluster.environment()} if cluster else {}
    arguments: dict[str, str] = {}
    if cluster is not None and cluster.docker_host is not None:
        base = lifecycle.base_image(name)
        arguments = {"PYTHON_IMAGE": base, "BUILD_IMAGE": _with_certificates(base, env)}
    arguments["REVISION"] = _revision()
    for tag, dockerfile in _DOCKERFILES.items():
        with step(f"Building {tag}"):
            _docker_build(tag, REPOSITORY, REPOSITORY / dockerfile, arguments, env)
    _build_of_debian(REDIS, cluster, env)
    return arguments.get("PYTHON_IMAGE", "the official Python image")


def bring_prometheus(cluster: Cluster) -> None:
    """Build the Prometheus of the tests and bring it into the cluster's nodes."""
    if cluster.provider == "named":
        return  # whoever names a cluster of their own brings the images there
    _build_of_debian(PROMETHEUS, cluster, {"DOCKER_BUILDKIT": "0", **cluster.environment()})
    with step(f"Loading {PROMETHEUS} into the cluster {cluster.name}"):
        bring(cluster, PROMETHEUS)


def load(name: str) -> None:
    """Bring the images into the nodes of the cluster ``name``."""
    cluster = lifecycle.standing(name)
    if cluster.provider == "named":
        raise ClusterProblem(
            f"{lifecycle.NAMED_CLUSTER} names a cluster that `kind load` does not know: please push the images "
            f"({', '.join(ALL)}) to where its nodes find them."
        )
    with step(f"Loading the images into the cluster {name}"):
        # In one call: layers that they share travel once.
        bring(cluster, *ALL)


def bring(cluster: Cluster, *tags: str) -> None:
    """Bring images of the cluster's Docker into all nodes that run pods of ours."""
    env = cluster.environment()
    nodes = run(["kind", "get", "nodes"], timeout_s=60, env=env).split()
    # The control plane takes no pods where there are other nodes, and loading is most of what bringing up costs.
    with_pods = [node for node in nodes if not node.endswith("-control-plane")] or nodes
    command = ["kind", "load", "docker-image", *tags, f"--nodes={','.join(with_pods)}"]
    run(command, timeout_s=_LOAD_TIMEOUT_S, env=env)


def _docker_of(name: str) -> Cluster | None:
    """The cluster whose Docker builds; None is the Docker that runs on this machine anyway."""
    try:
        return lifecycle.standing(name)
    except ClusterProblem:
        return None if host.docker_runs() else lifecycle.docker_up(name)


def _build_of_debian(tag: str, cluster: Cluster | None, env: Mapping[str, str]) -> None:
    """Build an image that holds one program of a Debian package."""
    arguments: dict[str, str] = {}
    if cluster is not None and cluster.docker_host is not None:
        arguments = {"PYTHON_IMAGE": lifecycle.base_image(cluster.name), "DEBIAN_MIRROR": _debian_mirror()}
    folder = REPOSITORY / _OF_DEBIAN[tag]
    with step(f"Building {tag}"):
        _docker_build(tag, folder, folder / "Dockerfile", arguments, env)


def _docker_build(
    tag: str, folder: Path, dockerfile: Path, arguments: Mapping[str, str], env: Mapping[str, str]
) -> None:
    command = ["docker", "build", "--network=host", f"--tag={tag}", f"--file={dockerfile}"]
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    run([*command, str(folder)], timeout_s=_BUILD_TIMEOUT_S, env=env, doing=f"docker build of {tag}")


def _with_certificates(base: str, env: Mapping[str, str]) -> str:
    """The base with this machine's certificates, for the stage that talks to the package index."""
    trusted = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    if not trusted:
        return base
    tag = f"{_BUILD_IMAGE}:{base.rpartition(':')[2]}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "trusted.crt").write_bytes(Path(trusted).read_bytes())
        (folder / "Dockerfile").write_text(
            f"FROM {base}\nCOPY trusted.crt /etc/ssl/trusted.crt\nENV PIP_CERT=/etc/ssl/trusted.crt\n"
        )
        _docker_build(tag, folder, folder / "Dockerfile", {}, env)
    return tag


def _debian_mirror() -> str:
    """Our own base has no package source; the one of this machine serves it."""
    for path in map(Path, ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")):
        if path.exists() and (mirror := debian.mirror_of(path.read_text())):
            return mirror
    raise ClusterProblem(
        "This machine has no list of Debian package sources, which our images of Debian's programs need."
    )


def _revision() -> str:
    try:
        return run(["git", "rev-parse", "HEAD"], timeout_s=10, cwd=REPOSITORY).strip()
    except (ClusterProblem, OSError):
        return "unknown"  # an unpacked source archive has no history


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.images", description="Build Headrace's images.")
    parser.add_argument("--name", default="headrace", help="the cluster whose Docker builds (default: %(default)s)")
    parser.add_argument("--load", action="store_true", help="also bring them into the cluster's nodes")
    options = parser.parse_args()
    try:
        say(f"Built {', '.join(ALL)} on {build(options.name)}.")
        if options.load:
            load(options.name)
    except ClusterProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
