#!/usr/bin/env python3
"""runc for machines whose own capabilities are bounded.

``docker run --privileged`` asks for every capability there is. Where the machine itself lacks one (CAP_SYS_RESOURCE on
some virtual machines), runc refuses the whole container. dockerd is told to call this script instead: it takes
out of the request what cannot be had, and then becomes runc.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

# In the order of the kernel's numbers (linux/capability.h).
_CAPABILITIES = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]


def allowed_capabilities(process_status: str) -> set[str]:
    """The bounding set that ``/proc/self/status`` tells."""
    line = next(line for line in process_status.splitlines() if line.startswith("CapBnd:"))
    mask = int(line.split()[1], 16)
    return {f"CAP_{name}" for number, name in enumerate(_CAPABILITIES) if mask >> number & 1}


def bound(process: dict[str, Any], allowed: set[str]) -> None:
    """Take out of a container's process what this machine cannot grant."""
    capabilities = process.get("capabilities") or {}
    for kind, names in capabilities.items():
        capabilities[kind] = [name for name in names or () if name in allowed]
    # Lowering the score takes CAP_SYS_RESOURCE too.
    if "CAP_SYS_RESOURCE" not in allowed and (process.get("oomScoreAdj") or 0) < 0:
        process["oomScoreAdj"] = 0


def option(arguments: list[str], *names: str) -> str | None:
    """The value of an option, written as two arguments or with an equals sign."""
    for position, argument in enumerate(arguments):
        for name in names:
            if argument == name and position + 1 < len(arguments):
                return arguments[position + 1]
            if argument.startswith(f"{name}="):
                return argument.removeprefix(f"{name}=")
    return None


def main(arguments: list[str]) -> None:
    allowed = allowed_capabilities(Path("/proc/self/status").read_text())
    if "create" in arguments or "run" in arguments:
        path = Path(option(arguments, "--bundle", "-b") or ".") / "config.json"
        config = json.loads(path.read_text())
        bound(config["process"], allowed)
        path.write_text(json.dumps(config))
    elif "exec" in arguments and (file := option(arguments, "--process", "-p")):
        process = json.loads(Path(file).read_text())
        bound(process, allowed)
        Path(file).write_text(json.dumps(process))
    os.execv(shutil.which("runc") or "/usr/sbin/runc", ["runc", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
