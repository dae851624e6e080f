"""Outcomes on their way to Redis.

Whatever finishes while a round trip is under way goes out together with the next one. A settlement leaves
here only when Redis has answered it: while Redis is away they wait, and their leases are kept alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from headrace.model.outcomes import Settlement, SettleStatus
from headrace.queue.queue import MAX_TASKS_PER_CALL, RunTimes

from .metrics import WorkerMetrics
from .running import Ended, RunningTask, RunningTasks

_REFUSED = (SettleStatus.LOST, SettleStatus.GONE)  # looked up once: it takes longer than to compare with them

_log = structlog.get_logger(__name__)


class Settler:
    """The settlements of one queue."""

    def __init__(self, queue: str, running: RunningTasks, metrics: WorkerMetrics, on_added: Callable[[], None]) -> None:
        self._queue = queue
        self._running = running
        self._metrics = metrics
        self._on_added = on_added
        self._waiting: list[Ended] = []
        self._ran_s: dict[str, tuple[int, float]] = {}

    @property
    def has_some(self) -> bool:
        return bool(self._waiting)

    def add(self, task: RunningTask, settlement: Settlement) -> None:
        """Take a settlement for the next round trip."""
        self._waiting.append((task, settlement))
        self._on_added()

    def take(self) -> list[Ended]:
        """What goes out now. Follow with `answered` or `put_back`."""
        taken, self._waiting = self._waiting[:MAX_TASKS_PER_CALL], self._waiting[MAX_TASKS_PER_CALL:]
        return taken

    def ran(self, level: str, seconds: float) -> None:
        """A handler of this level has ended after this time."""
        runs, total_s = self._ran_s.get(level, (0, 0.0))
        self._ran_s[level] = (runs + 1, total_s + seconds)

    def take_run_times(self) -> RunTimes:
        """What was measured since the last time. If it gets lost on the way, the next ones serve as well."""
        taken, self._ran_s = self._ran_s, {}
        return [part for level, (runs, total_s) in taken.items() for part in (level, runs, round(total_s * 1e6))]

    def put_back(self, ended: Sequence[Ended]) -> None:
        """Redis did not answer: keep them for the next try. Sending one twice does no harm."""
        self._waiting[:0] = ended

    def answered(self, ended: Sequence[Ended], statuses: Sequence[SettleStatus]) -> None:
        """Redis has answered: the leases are over."""
        self._running.remove(self._queue, [(settlement.task_id, settlement.token) for _, settlement in ended])
        self._metrics.settled(self._queue, ended, statuses)
        for (task, settlement), status in zip(ended, statuses, strict=True):
            if task.spans is not None:
                task.spans.settled(settlement, status)
            if status in _REFUSED:
                _log.warning(
                    "settlement refused: the lease was lost",
                    queue=self._queue,
                    task_id=settlement.task_id,
                    token=settlement.token,
                    outcome=settlement.outcome.value,
                    status=status.value,
                )
