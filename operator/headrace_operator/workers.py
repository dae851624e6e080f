"""Which pod does what, from the pulses of the queues that its worker serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.model.figures import Pulse, WorkerPulse
from headrace.model.states import WorkerState


@dataclass
class PodWork:
    """A pod's worker, as each of its queues knows it. A worker's host is its pod's name."""

    rows: list[tuple[str, WorkerPulse]] = field(default_factory=list)

    def in_queue(self, queue: str) -> list[WorkerPulse]:
        return [worker for name, worker in self.rows if name == queue]

    def executing_in(self, queue: str) -> float:
        """Slots that this queue's tasks have. A worker may hold more tasks than it has slots, see decision 0010."""
        held = sum(worker.load for _, worker in self.rows)
        slots = max((worker.capacity for _, worker in self.rows), default=0)
        share = min(1.0, slots / held) if held else 0.0
        return share * sum(worker.load for worker in self.in_queue(queue))

    @property
    def is_known(self) -> bool:
        """Whether any queue has heard of it."""
        return bool(self.rows)

    @property
    def is_busy(self) -> bool:
        return any(worker.load > 0 for _, worker in self.rows)

    @property
    def is_draining(self) -> bool:
        return any(worker.state is WorkerState.DRAINING for _, worker in self.rows)

    @property
    def is_idle(self) -> bool:
        """It could take on a task, and has none."""
        return self.is_known and not self.is_busy and not self.is_draining

    @property
    def is_parked(self) -> bool:
        """It has confirmed to every queue that it takes on nothing, and holds nothing."""
        return self.is_known and all(
            worker.state is WorkerState.DRAINING and worker.parked and worker.load == 0 for _, worker in self.rows
        )


def pods_at_work(pulses: Sequence[tuple[str, Pulse]]) -> dict[str, PodWork]:
    """By pod name."""
    found: dict[str, PodWork] = {}
    for queue, pulse in pulses:
        for worker in pulse.workers:
            found.setdefault(worker.host, PodWork()).rows.append((queue, worker))
    return found
