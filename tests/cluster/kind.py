"""kind itself: creating a cluster, waiting until it is ready, and deleting it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.problem import ClusterProblem
from tests.cluster.process import mortal, run, succeeds
from tests.cluster.screen import step

_CREATE_TIMEOUT_S = 600
_DELETE_TIMEOUT_S = 120
_READY_TIMEOUT_S = 240


def configuration(nodes: int) -> str:
    """One control plane; every further node is a worker."""
    roles = ["control-plane", *["worker"] * (nodes - 1)]
    lines = ["kind: Cluster", "apiVersion: kind.x-k8s.io/v1alpha4", "nodes:", *(f"- role: {role}" for role in roles)]
    return "\n".join(lines) + "\n"


def exists(name: str, env: Mapping[str, str]) -> bool:
    return name in run(["kind", "get", "clusters", "--quiet"], timeout_s=60, env=env).split()


def create(name: str, nodes: int, image: str, kubeconfig: Path, env: Mapping[str, str]) -> None:
    command = ["kind", "create", "cluster", f"--name={name}", f"--image={image}", f"--kubeconfig={kubeconfig}"]
    with step(f"Creating the cluster {name} with {nodes} node{'s' if nodes > 1 else ''}"):
        run(
            [*command, "--config=-", "--wait=0s", "--quiet"],
            stdin=configuration(nodes),
            timeout_s=_CREATE_TIMEOUT_S,
            env=env,
            doing="kind create cluster",
        )


def wait_until_ready(env: Mapping[str, str]) -> None:
    """Every node is Ready, and names can be looked up."""
    with step("Waiting for the nodes and for CoreDNS"):
        limit = f"--timeout={_READY_TIMEOUT_S}s"
        for arguments in (
            ["wait", "--for=condition=Ready", "nodes", "--all", limit],
            ["--namespace=kube-system", "rollout", "status", "deployment/coredns", limit],
        ):
            run(["kubectl", *arguments], timeout_s=_READY_TIMEOUT_S + 30, env=env)


def is_ready(nodes: int, env: Mapping[str, str]) -> bool:
    """Whether a cluster that was made earlier still has all its nodes, Ready, and CoreDNS."""
    command = ["kubectl", "get", "nodes", "--output=name", "--request-timeout=10s"]
    try:
        present = run(command, timeout_s=20, env=env).split()
    except ClusterProblem:
        return False
    return len(present) == nodes and all(
        succeeds(["kubectl", *arguments, "--timeout=20s"], timeout_s=30, env=env)
        for arguments in (
            ["wait", "--for=condition=Ready", "nodes", "--all"],
            ["--namespace=kube-system", "wait", "--for=condition=Available", "deployment/coredns"],
        )
    )


def delete(name: str, kubeconfig: Path, env: Mapping[str, str]) -> None:
    run(
        ["kind", "delete", "cluster", f"--name={name}", f"--kubeconfig={kubeconfig}"],
        timeout_s=_DELETE_TIMEOUT_S,
        env=env,
    )


def pull(image: str) -> bool:
    """Whether the running Docker has the image or can get it. Its own progress is shown: it is several hundred MB."""
    if succeeds(["docker", "image", "inspect", image], timeout_s=60):
        return True
    # Asked first, because it answers at once where there is no registry.
    if not succeeds(["docker", "manifest", "inspect", image], timeout_s=30):
        return False
    return subprocess.run(mortal(["docker", "pull", image]), timeout=3600, check=False).returncode == 0
