"""The sentinels: who the primary is, and hearing at once when it is another.

A primary that Sentinel replaces while it is alive (a switch-over for maintenance, or after a partition) is told so
last, eight to ten seconds after its successor was promoted. It takes writes until then, and they are lost when it
becomes a replica. Whoever is connected to it sees no error in all that time, so asking on an error is not enough:
the sentinels announce the promotion, and we listen.

Listening makes the time shorter and is never relied on: a message that is missed leaves what errors tell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel

from .driver_errors import DRIVER_ERRORS

Address = tuple[str, int]
OnSwitch = Callable[[Address], Awaitable[None]]

# The first is said by the sentinel that leads the failover, as soon as the replica reports its new role; the
# second by each sentinel once it has taken over the new address, one to three seconds later.
_PROMOTED: Final = "+promoted-slave"
_SWITCHED: Final = "+switch-master"

# For as long the word of the leading sentinel counts more than that of the others, who do not know yet.
_BELIEVED_FOR_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 2.0

# How long those sentinels are waited for that are slower than the first.
_GRACE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _View:
    """What one sentinel says about the primary."""

    address: Address
    epoch: int
    is_down: bool


async def _view_of(client: Redis, service: str) -> _View:
    state: Any = await client.sentinel_master(service)
    named: Any = await client.sentinel_get_master_addr_by_name(service)
    if named is None:
        raise MasterNotFoundError(f"a sentinel does not know {service!r}")
    host, port = named
    address = (host.decode() if isinstance(host, bytes) else str(host), int(port))
    # What is down is the one in its list. A primary that it has just promoted is another one, and up.
    is_listed = address == (state["ip"], state["port"])
    return _View(address, state["config-epoch"], is_listed and (state["is_sdown"] or state["is_odown"]))


class Sentinels(Sentinel):
    """The driver's client of the sentinels, and the news it has heard."""

    _news: Address | None = None
    _news_until_s: float = 0.0

    async def discover_master(self, service_name: str) -> Address:
        """The primary's address, as the sentinel with the latest news has it.

        The driver takes the word of the first that answers. For a second or two after a promotion that can be one
        who has not heard of it, or the very one that leads the failover (its list of primaries has the old one
        until the end), and if the old primary has come back meanwhile, writes to it are lost. So all are asked, by
        the command that names the promoted one early, and the highest epoch decides.
        """
        if self._news is not None and asyncio.get_running_loop().time() < self._news_until_s:
            return self._news
        views = await self._ask_all(service_name)
        answers = [view for view in views if isinstance(view, _View)]
        latest = max(answers, key=lambda view: view.epoch, default=None)
        if latest is None or latest.is_down:
            reasons = "; ".join(str(view) for view in views if not isinstance(view, _View))
            raise MasterNotFoundError(f"the sentinels name no primary of {service_name!r} that is up {reasons}".strip())
        return latest.address

    async def _ask_all(self, service: str) -> list[_View | BaseException]:
        asking = [asyncio.create_task(_view_of(client, service)) for client in self.sentinels]
        for task in asking:
            # Looked at here as well: whoever waits may be cancelled before he does, and then nobody else would.
            task.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        try:
            done, late = await asyncio.wait(asking, timeout=_GRACE_S)
            if late and not any(task.exception() is None for task in done):
                done, late = await asyncio.wait(asking)
        finally:
            for task in asking:
                task.cancel()
        return [task.exception() or task.result() for task in done]

    def forget_news(self) -> None:
        """Ask again: what was heard led to a server that is not the primary."""
        self._news = None

    def listen(self, service: str, on_switch: OnSwitch) -> list[asyncio.Task[None]]:
        """Call ``on_switch`` whenever a sentinel announces a new primary, until the tasks are cancelled."""
        return [asyncio.create_task(self._listen_to(client, service, on_switch)) for client in self.sentinels]

    async def _listen_to(self, client: Redis, service: str, on_switch: OnSwitch) -> None:
        while True:
            try:
                async with client.pubsub() as channel:
                    await channel.subscribe(_PROMOTED, _SWITCHED)
                    async for message in channel.listen():
                        address = read_announcement(message, service)
                        if address is not None and address != self._news:
                            self._news = address
                            self._news_until_s = asyncio.get_running_loop().time() + _BELIEVED_FOR_S
                            await on_switch(address)
            except DRIVER_ERRORS:
                # This sentinel is away; the others talk as well.
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))


def read_announcement(message: dict[str, Any], service: str) -> Address | None:
    """The new primary's address; None if the message is about something else."""
    if message["type"] != "message":
        return None
    words = message["data"].decode().split()
    match message["channel"].decode(), words:
        case "+switch-master", [name, _old_host, _old_port, host, port] if name == service:
            return host, int(port)
        case "+promoted-slave", ["slave", _, host, port, "@", name, _old_host, _old_port] if name == service:
            return host, int(port)
    return None
