"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio

_ASK_AGAIN_AFTER_S = 0.05


async def cancel_and_wait(*tasks: asyncio.Task[None]) -> None:
    """Cancel ``tasks`` until they have ended; what they raise is not looked at.

    Once is not always enough: before Python 3.12 `asyncio.wait_for`, which the driver sends with, forgets a
    cancellation that arrives just as what it waits for is done.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_ASK_AGAIN_AFTER_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # marks it as seen
