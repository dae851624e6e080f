"""The port of a worker's health, opened before everything else.

The kubelet looks at a container for the first time a moment after its start, and again only a second later. So the port
listens before the worker takes the time to import what it runs: a probe that comes early waits for its answer instead
of being refused. Hence this file imports next to nothing.
"""

from __future__ import annotations

import socket

from headrace.model.errors import InvalidConfig


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; `headrace.worker.health` answers them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidConfig("health_address", f"cannot listen on {host}:{port}: {error.strerror}") from error
