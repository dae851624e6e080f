"""Which pod does what, from the pulses of the queues that its worker serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.model.figures import Pulse, WorkerPulse
from headrace.model.states import WorkerState

from .controllers.keeper import Keeper


@dataclass
class PodWork:
    """A pod's worker, as each of its queues knows it. A worker's host is its pod's name."""

    rows: list[tuple[str, WorkerPulse]] = field(default_factory=list)

    def in_queue(self, queue: str) -> list[WorkerPulse]:
        return [worker for name, worker in self.rows if name == queue]

    @property
    def is_busy(self) -> bool:
        return any(worker.load > 0 for _, worker in self.rows)

    @property
    def is_draining(self) -> bool:
        return any(worker.state is WorkerState.DRAINING for _, worker in self.rows)

    @property
    def is_idle(self) -> bool:
        return bool(self.rows) and not self.is_busy and not self.is_draining

    @property
    def is_parked(self) -> bool:
        """It has confirmed to every queue that it takes on nothing, and holds nothing."""
        return bool(self.rows) and all(
            worker.state is WorkerState.DRAINING and worker.parked and worker.load == 0 for _, worker in self.rows
        )


def work_by_pod(keepers: Sequence[Keeper]) -> dict[str, PodWork] | None:
    """By pod name; None unless every queue answers: nothing is decided on half of what is going on."""
    pulses = [(keeper.queue_name, keeper.pulse) for keeper in keepers if keeper.problem is None]
    if len(pulses) < len(keepers) or any(pulse is None for _, pulse in pulses):
        return None
    return pods_at_work([(name, pulse) for name, pulse in pulses if pulse is not None])


def pods_at_work(pulses: Sequence[tuple[str, Pulse]]) -> dict[str, PodWork]:
    """The same from pulses."""
    found: dict[str, PodWork] = {}
    for queue, pulse in pulses:
        for worker in pulse.workers:
            found.setdefault(worker.host, PodWork()).rows.append((queue, worker))
    return found
