"""What the bench knows about a queue before it has run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PEERS_FOLDER = Path(__file__).parent / "peers"

Toolchain = Literal["own", "python", "node", "go"]
"""How its programs are installed; ``own`` is Headrace itself, from this repository's environment."""

Remaining = Callable[[Any, int], int]
"""Given a Redis client and the number that was enqueued: how many tasks are not settled yet.

It asks for what the library itself keeps in Redis, so neither handler nor worker pays for being watched. A task
counts until its worker has acknowledged it, not only until its handler has returned.
"""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One queue: how to run it, how to watch it, and what it promises.

    ``worker`` and ``producer`` are command lines, split at spaces. In them ``{python}`` is the interpreter of its
    environment, ``{root}`` the folder of what was installed, ``{here}`` the folder of its programs and
    ``{concurrency}`` the number below.
    """

    name: str
    title: str
    language: str
    toolchain: Toolchain
    worker: str
    producer: str
    remaining: Remaining
    concurrency: int
    share: float
    """Its part of ``--tasks``, so that a slow queue takes about as long as a fast one."""
    packages: tuple[str, ...] = ()
    """Whose versions are shown, the queue's own first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    delivery: str
    lease: str
    fencing: str
    settings: str
    """What differs from the library's defaults, and how it enqueues in bulk."""

    @property
    def folder(self) -> Path:
        """Where its programs are."""
        return PEERS_FOLDER / self.name


def lengths(*reads: tuple[str, str]) -> Remaining:
    """The sum of some lengths, such as ``("LLEN", "queue")``, read in one transaction."""

    def remaining(client: Any, total: int) -> int:
        pipe = client.pipeline(transaction=True)
        for read in reads:
            pipe.execute_command(*read)
        return sum(pipe.execute())

    return remaining
