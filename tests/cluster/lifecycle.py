"""Bringing a cluster up and taking it down, whatever state an earlier call left it in."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.cluster import binaries, dockerd, host, kind, node_image, node_root, python_image, versions
from tests.cluster.cache import locked
from tests.cluster.places import Places
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run
from tests.cluster.screen import say

NAMED_CLUSTER = "HEADRACE_KUBECONFIG"

Provider = Literal["named", "docker", "private"]


@dataclass(frozen=True)
class Cluster:
    """A cluster that stands, and how to reach it.

    ``provider`` is ``named`` (the user's own), ``docker`` (kind on the Docker that runs) or ``private`` (kind on a
    dockerd of ours).
    """

    name: str
    provider: Provider
    kubeconfig: Path
    docker_host: str | None
    tools: Path | None

    def environment(self) -> dict[str, str]:
        """What to add to a process' environment so that kubectl, helm, kind and docker mean this cluster."""
        variables = {"KUBECONFIG": str(self.kubeconfig)}
        if self.provider != "named":
            variables["KIND_CLUSTER_NAME"] = self.name
        if self.docker_host is not None:
            variables["DOCKER_HOST"] = self.docker_host
            variables["KIND_EXPERIMENTAL_DOCKER_NETWORK"] = Places(self.name).network
        if self.tools is not None:
            variables["PATH"] = f"{self.tools}{os.pathsep}{os.environ.get('PATH', '')}"
        return variables


@dataclass(frozen=True)
class State:
    """What is written down about a cluster, before it is made and when it stands."""

    provider: Provider
    nodes: int
    image: str
    complete: bool


def up(name: str, nodes: int = 1) -> Cluster:
    """A cluster with this name and so many nodes: the one that stands, or a new one."""
    if nodes < 1:
        raise ClusterProblem("A cluster has at least one node: please give NODES=1 or more.")
    if named := os.environ.get(NAMED_CLUSTER):
        return _named(name, Path(named))
    places = Places(name)
    host.require_go()
    with locked(places.lock, f"another process works on the cluster {name}"):
        # A cluster stays with the Docker it was made on, even if another one has been started since.
        earlier = _read_state(places)
        provider = earlier.provider if earlier and earlier.complete else chosen_provider()
        if provider == "private":
            image = _prepare_private(places)
        else:
            say(f"Using the Docker that runs, and {versions.OFFICIAL_NODE_IMAGE.split('@')[0]}.")
            _link_tools(places, binaries.tools())
            image = versions.OFFICIAL_NODE_IMAGE
        _make(places, State(provider, nodes, image, complete=False), earlier)
        return _cluster(places, provider)


def docker_up(name: str) -> Cluster:
    """Only a private dockerd, for building images."""
    places = Places(name)
    _require_private()
    with locked(places.lock, f"another process works on the cluster {name}"):
        dockerd.start(places)
    return _cluster(places, "private")


def base_image(name: str) -> str:
    """The name of an image with Python to build on. A private dockerd is given one that we make."""
    places = Places(name)
    state = _read_state(places)
    if state is not None and state.provider == "docker":
        return versions.OFFICIAL_PYTHON_IMAGE
    if not dockerd.running(places):
        raise ClusterProblem(
            f"No private dockerd {name!r} is running: please start one with "
            f"`python -m tests.cluster up --docker-only --name {name}`."
        )
    _require_private()
    dockerd.load(places, python_image.reference(), python_image.python_image())
    return python_image.reference()


def down(name: str) -> None:
    """Leave nothing of it but the cache, whatever state it is in."""
    if os.environ.get(NAMED_CLUSTER):
        say(f"{NAMED_CLUSTER} names the cluster, so it is left alone.")
        return
    places = Places(name)
    with locked(places.lock, f"another process works on the cluster {name}"):
        state = _read_state(places)
        if state is not None and state.provider == "docker":
            kind.delete(name, places.kubeconfig, _cluster(places, "docker").environment())
        if shutil.which("dockerd") and os.geteuid() == 0:
            dockerd.stop(places)
        for path in (places.state, places.kubeconfig, places.docker_log):
            path.unlink(missing_ok=True)
    say(f"The cluster {name} is down.")


def standing(name: str) -> Cluster:
    """The cluster of that name, which someone brought up before."""
    if named := os.environ.get(NAMED_CLUSTER):
        return Cluster(name, "named", Path(named), None, None)
    places = Places(name)
    state = _read_state(places)
    if state is not None and state.complete:
        return _cluster(places, state.provider)
    if dockerd.running(places):
        return _cluster(places, "private")
    raise ClusterProblem(f"There is no cluster {name!r}: please bring it up with: make cluster NAME={name}")


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────


def _named(name: str, kubeconfig: Path) -> Cluster:
    if shutil.which("kubectl") is None:
        raise ClusterProblem(f"{NAMED_CLUSTER} names a cluster, and kubectl to reach it is missing: please install it.")
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "get", "nodes", "--request-timeout=10s"]
    try:
        run(command, timeout_s=30)
    except ClusterProblem as error:
        raise ClusterProblem(
            f"The cluster that {NAMED_CLUSTER} names ({kubeconfig}) does not answer: {error}"
        ) from error
    say(f"Using the cluster that {NAMED_CLUSTER} names.")
    return Cluster(name, "named", kubeconfig, None, None)


def chosen_provider() -> Provider:
    """Where a new cluster would be made."""
    return "docker" if host.docker_runs() and kind.pull(versions.OFFICIAL_NODE_IMAGE) else "private"


def _require_private() -> None:
    host.require_private_docker()
    host.install_packages()


def _cluster(places: Places, provider: Provider) -> Cluster:
    docker_host = places.docker_host if provider == "private" else None
    return Cluster(places.name, provider, places.kubeconfig, docker_host, places.bin)


# ── making ───────────────────────────────────────────────────────────────────────────────────────────


def _prepare_private(places: Places) -> str:
    """A private dockerd that has the node image; what it takes is built first if need be."""
    _require_private()
    say("Using a private dockerd, and a node image of our own.")
    host.require_disk(host.WARM_START_BYTES if binaries.all_programs_built() else host.COLD_BUILD_BYTES)
    # The programs keep two cores busy; what debootstrap waits for in the meantime is the network.
    programs, root = _together(binaries.all_programs, node_root.node_root)
    folder = node_image.node_image(root, programs)
    _link_tools(places, programs)
    dockerd.start(places)
    image = node_image.reference(programs)
    dockerd.load(places, image, folder)
    return image


def _together(first: Callable[[], Path], second: Callable[[], Path]) -> tuple[Path, Path]:
    pool = ThreadPoolExecutor(2)
    try:
        futures = [pool.submit(first), pool.submit(second)]
        # When one fails, the other is not waited for.
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()
        return futures[0].result(), futures[1].result()
    finally:
        pool.shutdown(wait=False)


def _make(places: Places, wanted: State, earlier: State | None) -> None:
    cluster = _cluster(places, wanted.provider)
    env = cluster.environment()
    if earlier == State(wanted.provider, wanted.nodes, wanted.image, complete=True) and kind.is_ready(
        wanted.nodes, env
    ):
        say(f"The cluster {places.name} stands already.")
        return
    if kind.exists(places.name, env):
        say(f"Removing what is left of an earlier cluster {places.name}.")
        kind.delete(places.name, places.kubeconfig, env)
    _write_state(places, wanted)
    kind.create(places.name, wanted.nodes, wanted.image, places.kubeconfig, env)
    kind.wait_until_ready(env)
    _write_state(places, State(wanted.provider, wanted.nodes, wanted.image, complete=True))


def _link_tools(places: Places, folder: Path) -> None:
    places.folder.mkdir(parents=True, exist_ok=True)
    draft = places.folder / "bin.draft"
    draft.unlink(missing_ok=True)
    draft.symlink_to(folder)
    draft.replace(places.bin)


def _read_state(places: Places) -> State | None:
    try:
        return State(**json.loads(places.state.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _write_state(places: Places, state: State) -> None:
    draft = places.state.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(state)))
    draft.replace(places.state)
