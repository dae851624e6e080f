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

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.app.context import TaskContext, current_context
    from headrace.app.handle import TaskHandle
    from headrace.app.headrace import Headrace
    from headrace.app.tasks import TaskCall
    from headrace.model.config import Boost, Level, Promotion, QueueConfig, RetryPolicy
    from headrace.model.errors import (
        BackendError,
        BackendUnavailable,
        ConfigConflict,
        Deposed,
        HeadraceError,
        InvalidArguments,
        InvalidConfig,
        InvalidInput,
        InvalidName,
        InvalidPayload,
        OutOfMemory,
        PoolExhausted,
        QueueHeld,
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
else:
    # Each of them is imported when it is first asked for. Python runs this file before any other of the package, and a
    # worker has to listen for its first probe before it takes the time to import the rest (see `headrace.cli.main`).
    _EXPORTS = {
        "headrace.app.context": ("TaskContext", "current_context"),
        "headrace.app.handle": ("TaskHandle",),
        "headrace.app.headrace": ("Headrace",),
        "headrace.app.tasks": ("TaskCall",),
        "headrace.model.config": ("Boost", "Level", "Promotion", "QueueConfig", "RetryPolicy"),
        "headrace.model.errors": (
            "BackendError",
            "BackendUnavailable",
            "ConfigConflict",
            "Deposed",
            "HeadraceError",
            "InvalidArguments",
            "InvalidConfig",
            "InvalidInput",
            "InvalidName",
            "InvalidPayload",
            "OutOfMemory",
            "PoolExhausted",
            "QueueHeld",
            "ResultTimeout",
            "TaskCancelled",
            "TaskFailed",
            "TaskNotFound",
            "Unconfirmed",
            "UnknownLevel",
            "UnknownQueue",
            "UnsafeBackend",
        ),
        "headrace.model.figures": ("QueueStats", "WorkerRecord"),
        "headrace.model.outcomes": ("Fail", "Retry", "Snooze"),
        "headrace.model.states": ("TaskState", "WorkerActivity", "WorkerState"),
        "headrace.model.task": ("TaskRecord",),
        "headrace.queue.settings": ("RedisSettings",),
    }
    _HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'headrace' has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = value = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__():
        return [*globals(), *_HOMES]


__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BackendUnavailable",
    "Boost",
    "ConfigConflict",
    "Deposed",
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
    "QueueHeld",
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
