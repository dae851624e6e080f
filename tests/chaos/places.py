"""Where tasks are in Redis. This is the one file of the drills that knows keys and fields.

The library's own inspection reads one task at a time, which is too slow for a million of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from headrace.model.states import TaskState
from headrace.queue.keys import QueueKeys

# Reads many tasks at one instant. It is sent as it is and not by its digest: some drills flush the scripts.
_LOOK = """#!lua flags=no-writes
local found = {}
for index, id in ipairs(ARGV) do
  local places = {}
  for place, key in ipairs(KEYS) do
    if place > 1 and redis.call('ZSCORE', key, id) then places[#places + 1] = place end
  end
  local task = redis.call('HMGET', string.sub(KEYS[1], 1, -7) .. 'task:' .. id, 'msg', 'state')
  -- A task that was never claimed has no state of its own: it is queued.
  found[index] = {task[1] and (task[2] or 'queued') or '', places}
end
return found
"""

_PLACE_OF = {
    TaskState.SCHEDULED: "delayed",
    TaskState.RETRYING: "delayed",
    TaskState.QUEUED: "ready",
    TaskState.EXECUTING: "leases",
    TaskState.COMPLETED: "finished",
    TaskState.FAILED: "finished",
    TaskState.CANCELLED: "finished",
    TaskState.DEAD_LETTER: "dead",
}


@dataclass(frozen=True, slots=True)
class Found:
    """One task at one instant."""

    state: TaskState | None
    """None when there is no such task."""
    places: tuple[str, ...]

    @property
    def in_its_place(self) -> bool:
        """It exists, is in exactly one place, and its state says which."""
        return self.state is not None and self.places == (_PLACE_OF[self.state],)


async def look_at(client: Redis, keys: QueueKeys, levels: Sequence[str], ids: Sequence[str]) -> list[Found]:
    """Where these tasks are, all at the same instant. Tasks with capabilities are not looked for."""
    # Tasks whose worker died wait in a line of their own.
    ready = [f"ready:{level}:{line}" for level in levels for line in ("", "!")]
    names = ["config", "delayed", "leases", "dead", "finished", *ready]
    rows: Any = await client.eval(_LOOK, len(names), *(keys.prefix + name for name in names), *ids)
    return [
        Found(
            TaskState(state.decode()) if state else None,
            tuple("ready" if names[place - 1] in ready else names[place - 1] for place in places),
        )
        for state, places in rows
    ]
