"""How many tasks to hold beyond those that run.

A slot whose handler has ended stands idle until the next task has come from Redis. With tasks that take a hundred
milliseconds nobody notices; with tasks of one millisecond a third of the time would be spent waiting. So while
tasks are short, as many are held ready as run, so that each waits for about as long as one handler takes. Of very
short ones more are held, for some milliseconds' worth of work: fewer and fuller round trips leave the handlers more
time. What waits longer than it should is handed back, see `headrace.worker.handlers`.
"""

from __future__ import annotations

_NOTICEABLE = 0.01
"""A round trip shorter than this part of a task is not worth holding tasks for."""
_LONGEST_HANDLER_S = 0.05
"""Nothing is held behind tasks that take longer: it would have to be handed back before it can begin."""
_STOCK_S = 0.02
"""What is held lasts for about this long, if a full turn of all slots does not take longer anyway."""
_MOST_TURNS = 5
_MOST_HELD = 100
"""Of very short tasks no more is held than these bounds allow, or than one turn of all slots."""
_ENOUGH_ROUND_TRIPS = 2
_SMOOTHING = 0.1


class Ahead:
    """Measures tasks and round trips, and decides."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._handler_s: float | None = None
        self._round_trip_s = 0.0
        self._stuck = False

    def handled(self, seconds: float) -> None:
        """A handler has ended after this time."""
        self._stuck = False
        if self._handler_s is None:
            self._handler_s = seconds
        self._handler_s += _SMOOTHING * (seconds - self._handler_s)

    def exchanged(self, seconds: float) -> None:
        """Redis has answered after this time."""
        self._round_trip_s += _SMOOTHING * (seconds - self._round_trip_s)

    def got_stuck(self) -> None:
        """What was held did not get to run. Nothing is held any more until a handler has ended."""
        self._stuck = True

    def count(self) -> int:
        """How many tasks to hold beyond those that run."""
        if self._stuck or self._handler_s is None or self._handler_s > _LONGEST_HANDLER_S:
            return 0
        if self._round_trip_s < _NOTICEABLE * self._handler_s:
            return 0
        turns = _STOCK_S / max(self._handler_s, _STOCK_S / _MOST_TURNS)
        return max(self._concurrency, min(round(self._concurrency * turns), _MOST_HELD))

    def is_enough(self, held: int) -> bool:
        """Whether so many tasks, held or on their way, last until others can be here."""
        return held / self._concurrency * (self._handler_s or 0.0) > _ENOUGH_ROUND_TRIPS * self._round_trip_s
