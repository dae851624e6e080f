"""Every error Headrace raises, in one tree.

::

    HeadraceError
    ├── InvalidInput                 the caller's value is wrong; nothing was written; also a ValueError
    │   ├── InvalidName              a name outside the allowed alphabet or length
    │   ├── InvalidConfig            a queue configuration that contradicts itself
    │   ├── InvalidPayload           not JSON, NaN, nested too deeply, or too large
    │   ├── InvalidArguments         arguments that do not fit the handler's signature
    │   ├── UnknownQueue             nobody has defined the queue
    │   └── UnknownLevel             the queue has no such priority level
    ├── BackendError                 Redis said no, or said nothing
    │   ├── BackendUnavailable       unreachable, loading, or without a primary
    │   │   └── Unconfirmed          done on the primary, but too few replicas have it
    │   ├── PoolExhausted            every connection was busy for the whole pool wait
    │   ├── OutOfMemory              Redis has reached maxmemory and refuses new tasks
    │   └── UnsafeBackend            a server that could lose tasks; Headrace refuses to start on it
    ├── TaskNotFound                 no such task in this tenant's queue
    ├── ConfigConflict               a configuration change that would strand waiting tasks
    ├── QueueHeld                    another operator, or another object of the same one, has the say over the queue
    ├── Deposed                      a newer leader has spoken: this operator must not act any more
    ├── TaskFailed                   raised by ``result()`` when the task did not complete
    │   └── TaskCancelled            it was cancelled
    └── ResultTimeout               ``result(timeout_s=…)`` ran out of time; also a TimeoutError

Driver errors are wrapped where they cross into the package, with the cause chained.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of everything Headrace raises."""


class InvalidInput(HeadraceError, ValueError):
    """Raised before anything is written, naming the offending field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidName(InvalidInput):
    """Raised when a tenant, queue, level, capability or task type has a name that is not allowed."""


class InvalidConfig(InvalidInput):
    """Raised when a queue configuration contradicts itself."""


class InvalidPayload(InvalidInput):
    """Raised when arguments or a result cannot be carried as JSON within the limits."""


class InvalidArguments(InvalidInput):
    """Raised when arguments do not fit the handler's signature or type hints."""


class UnknownQueue(InvalidInput):
    """Raised when a task names a queue that nobody has defined."""


class UnknownLevel(InvalidInput):
    """Raised when a task names a priority level its queue does not have."""


class BackendError(HeadraceError):
    """Base of what can go wrong between Headrace and Redis."""


class BackendUnavailable(BackendError):
    """Raised when Redis cannot be reached or cannot serve writes at the moment."""


class Unconfirmed(BackendUnavailable):
    """Raised when the primary has carried a call out, but too few replicas confirmed it: it may yet be lost."""


class PoolExhausted(BackendError):
    """Raised when no pooled connection became free within the pool wait."""


class OutOfMemory(BackendError):
    """Raised when Redis has reached maxmemory: the task was not stored."""


class UnsafeBackend(BackendError):
    """Raised at start-up on a server whose settings could lose tasks."""


class TaskNotFound(HeadraceError):
    """Raised when a task id is unknown to this tenant, or its retention has ended."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id}: not found; it never existed here or its retention has ended")
        self.task_id = task_id


class ConfigConflict(HeadraceError):
    """Raised when a new configuration would strand tasks that are already waiting."""


class QueueHeld(HeadraceError):
    """Raised when an operator publishes a queue that somebody else holds."""

    def __init__(self, queue: str, holder: str) -> None:
        super().__init__(f"queue {queue!r} is held by {holder or 'nobody'}")
        self.queue = queue
        self.holder = holder


class Deposed(HeadraceError):
    """Raised when a call carries the epoch of a leader that another one has followed."""


class TaskFailed(HeadraceError):
    """Raised by ``result()`` when the task ended in any way but ``completed``."""

    def __init__(self, task_id: str, state: str, reason: str, message: str) -> None:
        super().__init__(f"task {task_id} is {state} ({reason}){': ' + message if message else ''}")
        self.task_id = task_id
        self.state = state
        self.reason = reason
        self.message = message


class TaskCancelled(TaskFailed):
    """Raised by ``result()`` when the task was cancelled."""


class ResultTimeout(HeadraceError, TimeoutError):
    """Raised by ``result(timeout_s=…)`` when the task has not finished in time; the task goes on."""

    def __init__(self, task_id: str, timeout_s: float) -> None:
        super().__init__(f"task {task_id}: no result within {timeout_s:g} s; the task itself is unaffected")
        self.task_id = task_id
        self.timeout_s = timeout_s
