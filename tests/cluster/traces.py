"""What a cluster can leave on a machine, listed so that before and after can be compared."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.places import Places


@dataclass(frozen=True)
class Traces:
    """Everything on this machine that belongs to one cluster, each thing by a name that is its own."""

    processes: frozenset[str]
    mounts: frozenset[str]
    interfaces: frozenset[str]
    rules: frozenset[str]
    cgroups: frozenset[str]
    run_files: frozenset[str]

    def total(self) -> int:
        return sum(len(things) for things in vars(self).values())


def traces(places: Places) -> Traces:
    """What is there now."""
    processes = _processes(places)
    return Traces(
        processes=frozenset(f"{pid} {command}" for pid, command in processes.items()),
        mounts=_mounts(places, [*processes, "self"]),
        interfaces=_interfaces(places),
        rules=_rules(places),
        cgroups=_cgroups(places),
        run_files=frozenset(str(path) for path in [places.run] if path.exists()),
    )


def machine_wide() -> dict[str, frozenset[str]]:
    """All interfaces, rules and mounts of the machine, whoever made them."""
    return {
        "interfaces": frozenset(link["ifname"] for link in _links()),
        "rules": frozenset(_all_rules()),
        "mounts": frozenset(Path("/proc/self/mountinfo").read_text().splitlines()),
    }


def _processes(places: Places) -> dict[str, str]:
    """Processes that name one of the cluster's folders or are in its control group, and all their descendants."""
    commands: dict[str, str] = {}
    parents: dict[str, str] = {}
    ours: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
            status = dict(
                line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line
            )
            groups = (folder / "cgroup").read_text()
        except OSError:
            continue
        # One that has ended and waits for process 1 to take note is gone.
        if status["State"].startswith(("Z", "X")):
            continue
        commands[folder.name] = command or status["Name"]
        parents[folder.name] = status["PPid"]
        named = (
            f"{places.run}/" in command or f"{places.docker_data}/" in command or f"={places.docker_data}" in command
        )
        if named or f"/{places.network}/" in groups:
            ours.add(folder.name)
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: commands[pid] for pid in ours}


def _mounts(places: Places, processes: list[str]) -> frozenset[str]:
    """Mounts of the cluster's folders, in every mount namespace that this machine or the cluster has."""
    found = set()
    for pid in processes:
        try:
            lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        except OSError:
            continue
        found |= {line for line in lines if str(places.run) in line or str(places.docker_data) in line}
    return frozenset(found)


def _cgroups(places: Places) -> frozenset[str]:
    # Control groups come and go while one looks; unlike a glob, a walk passes over those that are gone.
    walk = os.walk("/sys/fs/cgroup")
    return frozenset(f"{folder}/{places.network}" for folder, folders, _ in walk if places.network in folders)


def _interfaces(places: Places) -> frozenset[str]:
    return frozenset(link["ifname"] for link in _links() if places.bridge in (link["ifname"], link.get("master")))


def _links() -> list[dict[str, str]]:
    links: list[dict[str, str]] = json.loads(_output("ip", "-json", "link"))
    return links


def _rules(places: Places) -> frozenset[str]:
    return frozenset(rule for rule in _all_rules() if places.network in rule or places.bridge in rule)


def _all_rules() -> list[str]:
    return [line for line in _output("iptables-save").splitlines() if line.startswith("-A")]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
