"""How many tasks the worker can take on, over all its queues."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Room for tasks. Taken before a claim is sent, so that two queues never claim for the same slot.

    Queues that find no room wait in line: a busy queue cannot keep the others out by being quicker.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self._ahead = 0
        self._line: list[str] = []
        self._on_freed: list[Callable[[], None]] = []

    def when_freed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever there is room again."""
        self._on_freed.append(callback)

    def has_room_for(self, queue: str) -> bool:
        """Whether it is this queue's turn and there is room; if not, it stands in line from now on."""
        if self.free > 0 and self._line[:1] in ([], [queue]):
            return True
        if queue not in self._line:
            self._line.append(queue)
        return False

    def leave_line(self, queue: str) -> None:
        """The queue has nothing to claim at the moment."""
        if queue in self._line:
            self._line.remove(queue)
            if self.free > 0:
                self._tell()

    def take(self, queue: str, at_most: int) -> int:
        """Reserve free slots; returns how many: none if it is another queue's turn."""
        if not self.has_room_for(queue):
            return 0
        if self._line:
            self._line.pop(0)
        taken = min(self.free, at_most)
        self.free -= taken
        return taken

    @property
    def total(self) -> int:
        """How many tasks may be held at once."""
        return self.capacity + self._ahead

    def hold_ahead(self, count: int) -> None:
        """Make room for this many tasks beyond those that can run."""
        more, self._ahead = count - self._ahead, count
        self.free += more
        if more > 0:
            self._tell()

    def give_back(self, count: int) -> None:
        """Return slots that were not used, or that are used no longer.

        Negative when a claim whose answer was lost comes back with more than there is room for by now.
        """
        if count != 0:
            self.free += count
            self._tell()

    def _tell(self) -> None:
        for callback in self._on_freed:
            callback()
