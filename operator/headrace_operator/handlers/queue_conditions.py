"""What a TaskQueue says of itself: its figures and conditions, from what was found. Pure."""

from __future__ import annotations

from headrace.model.errors import HeadraceError, UnsafeBackend
from headrace.model.figures import Pulse
from headrace.model.states import WorkerState

from ..resources import TaskQueueResource
from ..status import Condition, QueueFigures, condition, starving


def figures_of(pulse: Pulse | None) -> QueueFigures | None:
    """A pulse as a status shows it."""
    if pulse is None:
        return None
    return QueueFigures(
        levels=pulse.levels,
        executing=pulse.executing,
        delayed=pulse.delayed,
        dead=pulse.dead_letter,
        workers_active=sum(worker.state is WorkerState.ACTIVE for worker in pulse.workers),
        workers_draining=sum(worker.state is WorkerState.DRAINING for worker in pulse.workers),
        workers_dead=pulse.workers_dead,
        completed_last_minute=pulse.completed_last_minute,
        failed_last_minute=pulse.failed_last_minute,
        promoted=pulse.promoted,
        paused=pulse.paused,
    )


def keys_of(resource: TaskQueueResource) -> str:
    return f"{resource.tenant}/{resource.queue_name}"


def not_ready(reason: str, message: str) -> Condition:
    return condition("Ready", False, reason, message)


def ready(resource: TaskQueueResource) -> Condition:
    return condition("Ready", True, "Published", f"Published as {keys_of(resource)}")


def unreachable(error: HeadraceError) -> list[Condition]:
    reason = "BackendUnsafe" if isinstance(error, UnsafeBackend) else "BackendUnreachable"
    return [
        condition("Ready", False, reason, str(error)),
        condition("BackendReachable", False, reason, str(error)),
    ]


def reachable(resource: TaskQueueResource, pulse: Pulse | None) -> list[Condition]:
    found = [condition("BackendReachable", True, "Answers", "Redis answers")]
    figures = figures_of(pulse)
    if pulse is not None and figures is not None:
        paused = "No task is handed out" if pulse.paused else "Tasks are handed out"
        found.append(condition("Paused", pulse.paused, "Paused" if pulse.paused else "NotPaused", paused))
        found.append(starving(resource, figures, pulse.at_s))
    return found
