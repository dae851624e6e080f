"""How many tasks the worker can take on, over all its queues."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Room for tasks. Taken before a claim is sent, so that two queues never claim for the same slot."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self._on_freed: list[Callable[[], None]] = []

    def when_freed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever there is room again."""
        self._on_freed.append(callback)

    def take_all(self) -> int:
        """Reserve every free slot; returns how many."""
        # Below zero only when a claim whose answer was lost comes back with more than there is room for now.
        taken = max(0, self.free)
        self.free -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Return slots that were not used, or that are used no longer."""
        if count != 0:
            self.free += count
            for callback in self._on_freed:
                callback()
