"""A task that has been enqueued, from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from headrace.model.errors import TaskCancelled, TaskFailed
from headrace.model.states import TaskState
from headrace.model.task import TaskRecord

if TYPE_CHECKING:
    from .headrace import Headrace

T = TypeVar("T")


class TaskHandle(Generic[T]):
    """Made by ``enqueue``; needs no more than the queue's name and the task's id."""

    __slots__ = ("_app", "duplicate", "id", "queue")

    def __init__(self, app: Headrace, queue: str, task_id: str, *, duplicate: bool = False) -> None:
        self._app = app
        self.queue = queue
        self.id = task_id
        self.duplicate = duplicate
        """Whether the idempotency key led to a task that was there before."""

    async def result(self, timeout_s: float | None = None) -> T:
        """Wait for the task's result.

        Raises `TaskFailed` (or `TaskCancelled`) when it ended otherwise, `ResultTimeout` when the time is
        up, and `TaskNotFound` when its retention has ended. Results keep JSON's types: a tuple comes back
        as a list.
        """
        record = await self._app.backend().finished(self.queue, self.id, timeout_s)
        return cast(T, result_of(record))

    async def record(self) -> TaskRecord:
        """Everything known about the task now."""
        return await self._app.backend().task(self.queue, self.id)

    async def state(self) -> TaskState:
        """Where the task is in its life."""
        return (await self.record()).state

    async def cancel(self) -> str:
        """Stop the task: ``cancelled`` at once if it waits, ``cancelling`` if it runs, else its final state."""
        (status,) = await self._app.backend().cancel(self.queue, [self.id])
        return status

    async def queue_position(self) -> int:
        """1 for the task that goes next; 0 when it is not waiting any more (or not due yet)."""
        return await self._app.backend().position(self.queue, self.id)

    def __repr__(self) -> str:
        return f"TaskHandle(queue={self.queue!r}, id={self.id!r})"


def result_of(record: TaskRecord) -> Any:
    """A finished task's result, or the exception that says why there is none."""
    if record.state is TaskState.COMPLETED:
        return record.result
    message = f"{record.problem.type}: {record.problem.message}" if record.problem else ""
    error = TaskCancelled if record.state is TaskState.CANCELLED else TaskFailed
    raise error(record.task_id, record.state.value, record.reason or record.state.value, message)
