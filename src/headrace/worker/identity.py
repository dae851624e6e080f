"""Who a worker is."""

from __future__ import annotations

import os
import re
import socket
from typing import Any

import msgspec


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about itself with every heartbeat."""

    worker: str
    capacity: int
    capabilities: str
    version: str
    host: str

    def fields(self) -> dict[str, Any]:
        """As `Queue.heartbeat` takes them."""
        return msgspec.structs.asdict(self)


def new_worker_id() -> str:
    """Host, process and a random part: a restarted worker is another worker."""
    host = re.sub(r"[^a-z0-9-]", "-", socket.gethostname().lower())[:40].strip("-") or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"
