"""All queues of the bench, in the order in which they are shown."""

from __future__ import annotations

import importlib

from benchmarks.peer import Peer

NAMES = ("headrace", "bullmq", "asynq", "dramatiq", "taskiq", "saq", "arq", "celery", "rq")


def load(names: tuple[str, ...] = NAMES) -> list[Peer]:
    """The peers of these names."""
    return [importlib.import_module(f"benchmarks.peers.{name}.peer").PEER for name in names]
