"""Scripts and plain commands to Redis, through outages and failovers.

Resending is safe because every Headrace script is idempotent: each call carries the ids (and, where a lease
is concerned, the fencing token) of what it changes, and a second run finds the change made and says so. A call
whose answer was lost is therefore sent again as it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from redis.exceptions import NoScriptError, ResponseError

from headrace.model.errors import BackendError, HeadraceError

from .confirmation import Confirmation
from .connection import Connection
from .driver import Word, pack
from .driver_errors import DRIVER_ERRORS, as_backend_error, is_transient, is_wrong_server
from .lanes import Route

PATIENCE_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0

_UNANSWERED: Final = object()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script; ``sha`` is the SHA-1 of ``source`` in hexadecimal, which is how Redis knows it."""

    name: str
    source: bytes
    sha: str


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One run of a script. The keys of all calls that are sent together share one hash tag."""

    script: Script
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]


class Transport:
    """Sends calls and returns raw replies; what goes wrong for good comes out as a ``BackendError``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._confirmation = Confirmation(connection.settings)
        self._in_trouble = False

    async def run(self, *calls: ScriptCall, patience_s: float = PATIENCE_S) -> list[Any]:
        """Run the calls in order and in one round trip; the replies come in the order of the calls.

        While Redis is away the calls without a reply are sent again until ``patience_s`` is over (0: one try
        only). Each try is given its full command timeout, the last one included. An error of one call does
        not stop the calls behind it: when all of them are through, the first error is raised.
        """
        if not calls:
            return []
        payloads = [pack_evalsha(call) for call in calls]
        keys = calls[0].keys
        if keys and self._confirmation.is_due(call.script.name for call in calls):
            return await self._deliver_confirmed(payloads, calls, keys[0], patience_s)
        return await self._deliver(payloads, calls, keys[0] if keys else None, patience_s)

    async def execute(self, *command: Word, patience_s: float = PATIENCE_S) -> Any:
        """Run one plain command, a word per argument, and return its raw reply (bytes, numbers, lists).

        It is sent again like a script call, so it must not matter whether it runs once or twice.
        """
        (reply,) = await self._deliver([pack(*command)], (), command, patience_s)
        return reply

    async def _deliver(
        self, payloads: list[bytes], calls: Sequence[ScriptCall], route: Route, patience_s: float
    ) -> list[Any]:
        """One reply for each payload; raises the first error once there is nothing left to try."""
        deadline_s = asyncio.get_running_loop().time() + patience_s
        replies: list[Any] = []
        failure = await self._attempt(payloads, replies, route)
        if failure is None and not any(isinstance(reply, ResponseError) for reply in replies):
            self._note_recovery()
            return replies

        replies += [_UNANSWERED] * (len(payloads) - len(replies))
        unknown_scripts: set[int] = set()
        longest_pause_s = _FIRST_PAUSE_S
        while True:
            for position, reply in enumerate(replies):
                if isinstance(reply, NoScriptError) and calls and position not in unknown_scripts:
                    # EVAL runs the script and makes it known in one go, on whichever node the call ends up.
                    payloads[position] = _pack_eval(calls[position])
                    replies[position] = _UNANSWERED
                    unknown_scripts.add(position)
            refused = [position for position, reply in enumerate(replies) if self._will_pass(reply)]
            waiting = [
                position for position, reply in enumerate(replies) if reply is _UNANSWERED or position in refused
            ]
            trouble = failure or (replies[refused[0]] if refused else None)
            if not waiting or not await self._may_try_again(trouble, longest_pause_s, deadline_s):
                break
            if trouble is not None:
                longest_pause_s = min(longest_pause_s * 2, _LONGEST_PAUSE_S)
            answers: list[Any] = []
            failure = await self._attempt([payloads[position] for position in waiting], answers, route)
            for position, answer in zip(waiting, answers, strict=False):  # fewer when the connection broke
                replies[position] = answer
        if trouble is None:
            self._note_recovery()
        for reply in replies:
            error = trouble if reply is _UNANSWERED else reply
            if isinstance(error, Exception):
                raise self._in_own_terms(error)
        return replies

    async def _deliver_confirmed(
        self, payloads: list[bytes], calls: Sequence[ScriptCall], key: bytes, patience_s: float
    ) -> list[Any]:
        """Like ``_deliver``, for calls whose replies count only when enough replicas have what they did.

        Calls and confirmation go and come back together: when anything is missing all of it is sent again,
        for what one primary did and another one's replicas confirmed proves nothing.
        """
        deadline_s = asyncio.get_running_loop().time() + patience_s
        behind = self._confirmation.payloads(key)
        unknown_scripts: set[int] = set()
        longest_pause_s = _FIRST_PAUSE_S
        while True:
            replies: list[Any] = []
            trouble = await self._attempt([*payloads, *behind], replies, key, together=True)
            errors = [reply for reply in replies if isinstance(reply, ResponseError)]
            unknown = {n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)} - unknown_scripts
            if trouble is None and unknown:
                for position in unknown:
                    payloads[position] = _pack_eval(calls[position])
                unknown_scripts |= unknown
                continue
            if trouble is None:
                trouble = next(filter(self._will_pass, errors), errors[0] if errors else None)
            if trouble is None:
                trouble = self._confirmation.shortfall(replies[len(calls) :])
            if trouble is None:
                self._note_recovery()
                return replies[: len(calls)]
            if not await self._may_try_again(trouble, longest_pause_s, deadline_s):
                raise self._in_own_terms(trouble)
            longest_pause_s = min(longest_pause_s * 2, _LONGEST_PAUSE_S)

    async def _attempt(
        self, payloads: Sequence[bytes], answers: list[Any], route: Route, *, together: bool = False
    ) -> Exception | None:
        try:
            await self._connection.exchange(payloads, answers, route, together=together)
        except (*DRIVER_ERRORS, BackendError) as error:
            return error
        return None

    async def _may_try_again(self, trouble: Exception | None, longest_pause_s: float, deadline_s: float) -> bool:
        """Wait a moment after trouble; False when there is no hope or no time left."""
        if trouble is None:
            return True  # only scripts that Redis did not know yet
        if not is_transient(trouble, self._connection.settings):
            return False
        remaining_s = deadline_s - asyncio.get_running_loop().time()
        if not self._in_trouble:
            self._in_trouble = True
            _log.warning("redis in trouble", server=self._connection.settings.describe(), error=str(trouble))
        if is_wrong_server(trouble):
            await self._connection.rediscover()
        if remaining_s <= 0:
            return False
        # Full jitter: after an outage a thousand workers must not come back in step.
        await asyncio.sleep(min(random.uniform(0, longest_pause_s), remaining_s))
        return True

    def _will_pass(self, reply: Any) -> bool:
        return isinstance(reply, ResponseError) and is_transient(reply, self._connection.settings)

    def _note_recovery(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            _log.info("redis is back", server=self._connection.settings.describe())

    def _in_own_terms(self, error: Exception) -> HeadraceError:
        translated = as_backend_error(error, self._connection.settings)
        if translated is not error:
            translated.__cause__ = error
        return translated


def pack_evalsha(call: ScriptCall) -> bytes:
    """The call as it is sent first: by the script's digest."""
    return pack(b"EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)


def _pack_eval(call: ScriptCall) -> bytes:
    return pack(b"EVAL", call.script.source, len(call.keys), *call.keys, *call.args)
