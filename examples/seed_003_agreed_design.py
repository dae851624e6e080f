"""Three levels with promotion by age: what a queue is when nothing else is said.

High goes before medium and medium before low, but nothing waits for ever: after 10 minutes a low task is
treated as medium, after 20 minutes as high, and there it is older than the rest and goes first. A failed
task goes back to the level it was sent to, at the place it had, with half as much time again for its next
attempt. Workers send a heartbeat every 30 seconds; three missed ones, and the worker is dead.

====================================  ====================================================================
where this kind of queue says         Headrace says
====================================  ====================================================================
submission time                       ``created_at_s``; a retry keeps its place by it
promote_aged_tasks, every 60 s        `Queue.promote`, ``promotion_interval_s``
priority, effective_priority          the same
requeue_task, timeout × 1.5           a settlement ``retry``, or an expired lease; ``timeout_factor``
queue:dlq, TTL 30 days, replay        ``dead_letter``; ``dead_letter_retention_s``; `Queue.replay`
poll, available_capacity              `Queue.claim` with ``want``
required_capabilities                 ``NewTask.capabilities``: only workers that have all of them get it
heartbeat 30 s, dead after 90 s       ``heartbeat_s``, ``worker_dead_after_s``; leases last as long
queue_position                        ``Inspector.position()``
trace_id                              the trace id in the task's ``traceparent``
idempotency, 24 hours                 ``idempotency_window_s``
====================================  ====================================================================
"""

from __future__ import annotations

from headrace import Level, Promotion, QueueConfig, RetryPolicy

WORKER_CAPACITY = 5

CONFIG = QueueConfig(
    "tasks",
    levels=(
        Level("high", max_retries=5, timeout_s=300),
        Level("medium", max_retries=3, timeout_s=600),
        Level("low", max_retries=2, timeout_s=900),
    ),
    default_level="medium",
    promotions=(
        Promotion("low", "medium", after_s=600, batch=100),
        Promotion("medium", "high", after_s=1200, batch=50),
    ),
    promotion_interval_s=60,
    # Failed tasks are requeued at once, and only the number of retries decides when it is enough.
    retry=RetryPolicy(base_s=0.0, timeout_factor=1.5),
    max_crashes=1000,
    heartbeat_s=30,
    lease_s=90,
    worker_dead_after_s=90,
    idempotency_window_s=86_400,
    dead_letter_retention_s=30 * 86_400,
)
