"""Hearing at once that a running task is to be stopped. What is missed here, the heartbeat brings."""

from __future__ import annotations

from headrace.queue.connection import Connection
from headrace.queue.queue import Queue
from headrace.queue.subscription import Subscription

from .running import RunningTasks, StopReason


async def listen_for_cancellations(connection: Connection, queue: Queue, running: RunningTasks) -> None:
    """Stop tasks as their ids are announced; runs until cancelled."""
    async for task_id in Subscription(connection, queue.keys.cancel_channel).messages():
        if task_id is not None:
            running.stop(queue.name, task_id, None, StopReason.CANCELLED)
