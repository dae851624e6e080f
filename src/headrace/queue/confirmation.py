"""Confirmation by replicas: which calls wait for it, and what is sent to ask for it.

Redis answers a write before any replica has it, so a primary that dies takes its last confirmed writes with it.
With ``confirm_replicas`` in the settings, every call that decides a task's fate is followed by ``WAIT``, in the same
round trip and on the same connection.

``WAIT`` promises something about the writes of its own connection only; on a connection without any it answers at
once. A call that was sent again, or that names an idempotency key somebody else has just stored, finds its work
done and writes nothing, and ``WAIT`` would say nothing about the write it found. Therefore a small write of our own
goes between the calls and ``WAIT``: replicas take writes in order, so one that has this write has all before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from .driver import pack
from .driver_errors import NotConfirmed
from .keys import confirmation_key
from .settings import RedisSettings

CONFIRMED_SCRIPTS: Final = frozenset({"enqueue", "settle", "cancel", "replay"})
"""A lost claim or heartbeat is repaired by the lease, and what maintenance did is done again. These are not."""

# A script, because a plain SET is refused out of memory, when settling must go on.
_MARK: Final = b"#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], '', 'EX', 60)"


class Confirmation:
    """What is sent behind a group of calls, and the judgement on its answers."""

    def __init__(self, settings: RedisSettings) -> None:
        self._replicas = settings.confirm_replicas
        self._timeout_s = settings.confirm_timeout_s
        # At least 1: with 0 the server would wait without end.
        self._wait = pack("WAIT", self._replicas, max(1, round(self._timeout_s * 1000)))

    def is_due(self, scripts: Iterable[str]) -> bool:
        """Whether calls of these scripts are worth waiting for."""
        return self._replicas > 0 and not CONFIRMED_SCRIPTS.isdisjoint(scripts)

    def payloads(self, key_of_queue: bytes) -> list[bytes]:
        """The commands to send behind the calls."""
        return [pack(b"EVAL", _MARK, 1, confirmation_key(key_of_queue)), self._wait]

    def shortfall(self, answers: Sequence[Any]) -> NotConfirmed | None:
        """What is wrong with the answers to ``payloads``, if they are no errors themselves."""
        _, confirmed_by = answers
        if confirmed_by >= self._replicas:
            return None
        return NotConfirmed(
            f"stored on the primary, but {confirmed_by} of {self._replicas} replicas confirmed it within "
            f"{self._timeout_s:g} s: a failover now could lose it"
        )
