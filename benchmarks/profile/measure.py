"""One drain of no-op tasks, with the processor time of the worker and of Redis taken apart."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections import defaultdict
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks import measures, registry
from benchmarks.install import Installed, install
from benchmarks.measures import Figures
from benchmarks.processes import ProgramFailed, Workers
from benchmarks.profile import samples
from benchmarks.redis_server import Server
from headrace.queue.scripts import script

SLOWLOG_US = 100
"""Scripts of a busy worker take longer than this, single commands within them do not: only scripts are logged."""
LOGGED = 100_000
ATTEMPTS = 4
BUSIEST = 15
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def profile(server: Server, *, tasks: int) -> Figures:
    """Drain ``tasks`` with one worker process and say where its time and Redis' time went."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _profile(server, tasks)
        except ProgramFailed:
            continue  # the sampler crashes its worker now and then, see there
    return _profile(server, tasks)


def _profile(server: Server, tasks: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-profile-") as folder:
        path = Path(folder, "samples")
        installed = _sampled(path)
        marks: list[dict[str, Any]] = []

        def mark(workers: Workers) -> None:
            marks.append(_mark(server, workers, path))
            server.client.slowlog_reset()

        server.client.config_set("slowlog-log-slower-than", SLOWLOG_US)
        server.client.config_set("slowlog-max-len", LOGGED)
        try:
            figures = measures.drain(installed, server, tasks=tasks, workers=1, on_mark=mark)
        finally:
            server.client.config_set("slowlog-log-slower-than", -1)
        begin, end = marks
        written = path.read_bytes()[begin["bytes"] : end["bytes"]]
        taken = list(samples.read(written))
    done = figures["timed"]
    redis_us = (end["redis_s"] - begin["redis_s"]) * 1e6
    scripts_us = end["scripts_us"] - begin["scripts_us"]
    # Redis times scripts by the clock on the wall: more than it used where others took its core away meanwhile.
    used = min(1.0, redis_us / scripts_us)
    return {
        "tasks": tasks,
        "per_s": figures["per_s"],
        "samples": len(taken),
        "worker_us": {
            "all": (end["user_s"] + end["system_s"] - begin["user_s"] - begin["system_s"]) / done * 1e6,
            "kernel": (end["system_s"] - begin["system_s"]) / done * 1e6,
            "collecting": samples.collecting_s(written) / done * 1e6,
            "groups": _scaled(samples.shares(taken), begin, end, done),
            "functions": _scaled(samples.busiest(taken, BUSIEST), begin, end, done),
        },
        "redis_us": {
            "all": redis_us / done,
            "scripts": scripts_us * used / done,
            "by_script": {name: took_us * used / done for name, took_us in end["by_script"].items()},
        },
    }


def _sampled(path: Path) -> Installed:
    (peer,) = registry.load(("headrace",))
    worker = peer.worker.replace("headrace.cli.main", f"benchmarks.profile.worker {path}")
    return install(dataclasses.replace(peer, worker=worker))


def _mark(server: Server, workers: Workers, path: Path) -> dict[str, Any]:
    user_s = system_s = 0.0
    for pid in workers.pids:
        # The name may hold spaces and brackets; the fields are counted behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user_s += int(fields[11]) / _TICKS_PER_S
        system_s += int(fields[12]) / _TICKS_PER_S
    return {
        "bytes": path.stat().st_size,
        "user_s": user_s,
        "system_s": system_s,
        "redis_s": server.cpu_s(),
        "scripts_us": server.script_us(),
        "by_script": _by_script(server),
    }


def _by_script(server: Server) -> dict[str, float]:
    """Time in Redis of each script since the slow log was last emptied."""
    files = resources.files("headrace.queue").joinpath("lua").iterdir()
    scripts = [script(file.name.removesuffix(".lua")) for file in files if file.name.endswith(".lua")]
    names = {made.sha: made.name for made in scripts}
    used_us: dict[str, float] = defaultdict(float)
    for entry in server.client.slowlog_get(LOGGED):
        words = entry["command"].split(b" ", 2)
        if words[0].upper().startswith((b"EVALSHA", b"FCALL")):  # a function is called by its name
            called = words[1].decode()
            used_us[names.get(called) or called] += entry["duration"]
    return dict(sorted(used_us.items(), key=lambda item: -item[1]))


def _scaled(parts: dict[str, float], begin: dict[str, Any], end: dict[str, Any], done: int) -> dict[str, float]:
    used_s = end["user_s"] + end["system_s"] - begin["user_s"] - begin["system_s"]
    return {name: part * used_s / done * 1e6 for name, part in parts.items()}
