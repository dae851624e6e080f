"""Which machine, which Redis and which versions were measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.install import Installed


def machine(redis_client: Any) -> dict[str, Any]:
    """What the figures depend on, and nothing that tells whose machine it is."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "redis": redis_client.info("server")["redis_version"],
        "python": platform.python_version(),
        "node": _output("node", "--version").lstrip("v"),
        "go": _output("go", "env", "GOVERSION").removeprefix("go"),
    }


def package_versions(installed: Installed) -> dict[str, str]:
    """The installed versions of the packages that a peer names."""
    names = installed.peer.packages
    match installed.peer.toolchain:
        case "own":
            return {name: version(name) for name in names}
        case "python":
            code = (
                "import json, sys, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
            )
            return dict(json.loads(_output(installed.python, "-c", code, *names)))
        case "node":
            return {name: _node_version(installed.root, name) for name in names}
        case "go":
            required = dict(
                line.split()[:2]
                for line in (installed.peer.folder / "go.mod").read_text().replace("require ", "").splitlines()
                if len(line.split()) >= 2
            )
            return {name: required[name].lstrip("v") for name in names}


def _node_version(root: Path, name: str) -> str:
    return str(json.loads((root / "node_modules" / name / "package.json").read_text())["version"])


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "missing"
