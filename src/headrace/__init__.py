"""Headrace: a Kubernetes-native priority task queue over Redis.

::

    from headrace import Headrace, QueueConfig

    app = Headrace("redis://localhost:6379/0", tenant="acme", queues=[QueueConfig("email")])

    @app.task(queue="email", priority="high")
    async def send(to: str, body: str) -> dict: ...

    task = await send.enqueue("a@b.c", body="hi")
    await task.result(timeout_s=10)

Run the tasks with ``headrace worker module:app``.
"""

from headrace.app.context import TaskContext, current_context
from headrace.app.handle import TaskHandle
from headrace.app.headrace import Headrace
from headrace.app.tasks import TaskCall
from headrace.model.config import Boost, Level, Promotion, QueueConfig, RetryPolicy
from headrace.model.errors import (
    BackendError,
    BackendUnavailable,
    ConfigConflict,
    HeadraceError,
    InvalidArguments,
    InvalidConfig,
    InvalidInput,
    InvalidName,
    InvalidPayload,
    OutOfMemory,
    PoolExhausted,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    Unconfirmed,
    UnknownLevel,
    UnknownQueue,
    UnsafeBackend,
)
from headrace.model.figures import QueueStats, WorkerRecord
from headrace.model.outcomes import Fail, Retry, Snooze
from headrace.model.states import TaskState, WorkerActivity, WorkerState
from headrace.model.task import TaskRecord
from headrace.queue.settings import RedisSettings

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BackendUnavailable",
    "Boost",
    "ConfigConflict",
    "Fail",
    "Headrace",
    "HeadraceError",
    "InvalidArguments",
    "InvalidConfig",
    "InvalidInput",
    "InvalidName",
    "InvalidPayload",
    "Level",
    "OutOfMemory",
    "PoolExhausted",
    "Promotion",
    "QueueConfig",
    "QueueStats",
    "RedisSettings",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "TaskCall",
    "TaskCancelled",
    "TaskContext",
    "TaskFailed",
    "TaskHandle",
    "TaskNotFound",
    "TaskRecord",
    "TaskState",
    "Unconfirmed",
    "UnknownLevel",
    "UnknownQueue",
    "UnsafeBackend",
    "WorkerActivity",
    "WorkerRecord",
    "WorkerState",
    "current_context",
]
