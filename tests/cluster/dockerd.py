"""A dockerd of our own, one per cluster.

It lives in process and mount namespaces of its own, below one ``unshare`` process. When that process ends, the kernel
ends everything in them with it: dockerd, containerd, every container and every mount. So taking a cluster down is
certain even when all else hangs, and there is no pid file that could name somebody else's process: the one process
to look for is recognised by its command line.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import network
from tests.cluster.cache import locked
from tests.cluster.places import Places, cache_root
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import mortal, run, succeeds
from tests.cluster.screen import say, step

_RUNC = Path(__file__).with_name("runc_within_bounds.py")
_CGROUPS = Path("/sys/fs/cgroup")
_START_TIMEOUT_S = 60.0
# Within this time it can be found by its command line, or it has failed.
_GRACE_S = 2.0
_ANSWER_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 10.0
_DOCKER_TIMEOUT_S = 120.0
_LOAD_TIMEOUT_S = 600.0
_POLL_S = 0.1
_INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
# A node takes about twenty, and 128 are the usual limit of a user: not enough for two clusters of three nodes. With too
# few, a kubelet ends at once with "too many open files", again and again.
_ENOUGH_INSTANCES = 1024


def command_line(places: Places) -> list[str]:
    return [
        *("unshare", "--fork", "--pid", "--kill-child", "--mount-proc"),
        # Orphans fall to the first process of the namespace, and dockerd would not reap them.
        *("tini", "--"),
        "dockerd",
        f"--host={places.docker_host}",
        f"--data-root={places.docker_data}",
        f"--exec-root={places.run / 'exec'}",
        f"--pidfile={places.run / 'dockerd.pid'}",
        f"--add-runtime=within-bounds={_RUNC}",
        "--default-runtime=within-bounds",
        f"--cgroup-parent=/{places.network}",
        # The network is ours: see network.py. Builds use the host's network: docker build --network host.
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
    ]


def start(places: Places) -> None:
    """Start it unless it runs, and make sure of the nodes' network: an earlier call may have ended in between."""
    _allow_enough_watches()
    if not (running(places) and _answers(places)):
        stop(places)
        with step("Starting a private dockerd"):
            _start_process(places)
            # Containers and networks of an earlier life, if it was killed.
            _remove_contents(places)
    _ensure_network(places)


def _allow_enough_watches() -> None:
    """Raise the kernel's limit if it is too low. It stays so: by the time we go, others may need it as well."""
    allowed = int(_INOTIFY_INSTANCES.read_text())
    if allowed < _ENOUGH_INSTANCES:
        _INOTIFY_INSTANCES.write_text(str(_ENOUGH_INSTANCES))
        say(f"Raised fs.inotify.max_user_instances from {allowed} to {_ENOUGH_INSTANCES}, which several nodes need.")


def stop(places: Places) -> None:
    """End it and all that it runs, and leave nothing of it but its image store."""
    if running(places):
        if _answers(places):
            _remove_contents(places)
        _end(places)
    network.forbid(places)
    network.remove_bridge(places)
    _remove_cgroups(places)
    shutil.rmtree(places.run, ignore_errors=True)


def running(places: Places) -> bool:
    return _holder(places) is not None


def has_image(places: Places, reference: str) -> bool:
    return succeeds(
        ["docker", "image", "inspect", reference], timeout_s=_DOCKER_TIMEOUT_S, env={"DOCKER_HOST": places.docker_host}
    )


def load(places: Places, reference: str, folder: Path) -> None:
    """Give it an image that ``image.write`` made, unless it has it."""
    if has_image(places, reference):
        return
    with step(f"Loading {reference} into dockerd"):
        pack = mortal(["tar", "--create", "--directory", str(folder), "."])
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
            done = subprocess.run(
                mortal(["docker", "load", "--quiet"]),
                stdin=tar.stdout,
                env=os.environ | {"DOCKER_HOST": places.docker_host},
                capture_output=True,
                text=True,
                timeout=_LOAD_TIMEOUT_S,
                check=False,
            )
            tar.kill()
        if done.returncode != 0:
            raise ClusterProblem(f"docker load failed:\n{done.stderr[-3000:]}")


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────


def _start_process(places: Places) -> None:
    if _start_once(places):
        return
    # A store that a power cut left in pieces is made anew; it holds only what can be loaded again.
    say("dockerd did not start; trying again with an empty image store.")
    stop(places)
    shutil.rmtree(places.docker_data)
    if not _start_once(places):
        tail = places.docker_log.read_text()[-3000:]
        stop(places)
        raise ClusterProblem(f"dockerd does not start. The end of {places.docker_log}:\n{tail}")


def _start_once(places: Places) -> bool:
    places.docker_data.mkdir(parents=True, exist_ok=True)
    places.run.mkdir(parents=True)
    with places.docker_log.open("w") as log:
        # A session of its own: Ctrl-C at the terminal is meant for us, and the cluster outlives this command.
        subprocess.run(
            ["setsid", "--fork", *command_line(places)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=_START_TIMEOUT_S,
            check=True,
        )
    began_s = time.monotonic()
    while time.monotonic() < began_s + _START_TIMEOUT_S:
        if _answers(places):
            return True
        if time.monotonic() > began_s + _GRACE_S and not running(places):
            return False
        time.sleep(_POLL_S)
    return False


def _answers(places: Places) -> bool:
    return places.socket.exists() and succeeds(
        ["docker", "version"], timeout_s=_ANSWER_TIMEOUT_S, env={"DOCKER_HOST": places.docker_host}
    )


def _docker(places: Places, *arguments: str) -> str:
    return run(["docker", *arguments], timeout_s=_DOCKER_TIMEOUT_S, env={"DOCKER_HOST": places.docker_host})


def _ensure_network(places: Places) -> None:
    """kind would make a network too, but one whose bridge and subnet nobody knows beforehand."""
    named = _docker(places, "network", "ls", "--quiet", f"--filter=name=^{places.network}$")
    if named.strip():
        subnet = _docker(places, "network", "inspect", "--format={{(index .IPAM.Config 0).Subnet}}", places.network)
        network.allow(places, ipaddress.IPv4Network(subnet.strip()))
        return
    with locked(cache_root() / "subnets.lock", "another process chooses a subnet"):
        chosen = places.node_subnet(network.taken_networks())
        _docker(
            places,
            *("network", "create", "--driver=bridge", f"--subnet={chosen}"),
            *("--opt", f"com.docker.network.bridge.name={places.bridge}"),
            places.network,
        )
    network.allow(places, chosen)


def _remove_contents(places: Places) -> None:
    containers = _docker(places, "ps", "--all", "--quiet").split()
    if containers:
        _docker(places, "rm", "--force", "--volumes", *containers)
    _docker(places, "volume", "prune", "--force")
    _docker(places, "network", "prune", "--force")


def _holder(places: Places) -> int | None:
    """The process that holds the namespaces, recognised by a command line that nobody else has."""
    mark = f"--exec-root={places.run / 'exec'}"
    for entry in Path("/proc").glob("[0-9]*"):
        command = _command_of(int(entry.name))
        if command[:1] == ["unshare"] and mark in command:
            return int(entry.name)
    return None


def _command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _end(places: Places) -> None:
    """Ask dockerd to end, and let the kernel end its namespaces if it does not."""
    holder = _holder(places)
    if holder is None:
        return
    # Handles instead of numbers: a number could come to mean another process at any moment.
    with _handle(holder) as holder_handle:
        if _holder(places) != holder:
            return
        with contextlib.ExitStack() as stack:
            # The first process in the namespace. When it is gone, so are all the others.
            firsts = [stack.enter_context(_handle(child)) for child in _children(holder)]
            for number in (signal.SIGTERM, signal.SIGKILL):
                for handle in firsts or [holder_handle]:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(handle, number)
                if all(_ended(handle) for handle in [*firsts, holder_handle]):
                    return
    raise ClusterProblem(f"dockerd (below process {holder}) does not end, even by force: please restart the machine.")


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ended(handle: int) -> bool:
    """Whether the process ends in time; a handle becomes readable then."""
    return bool(select.select([handle], [], [], _STOP_TIMEOUT_S)[0])


def _remove_cgroups(places: Places) -> None:
    """Control groups are folders that stay when their processes are gone."""
    for parent in [_CGROUPS / places.network, *_CGROUPS.glob(f"*/{places.network}")]:
        for folder, _, _ in os.walk(parent, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)
