"""A queue with ten tiers that many tenants have under the same name, each for itself.

Tier 9 is the highest, and a claim looks there first. Claims keep the queue healthy on their own: before a
worker gets a task, leases that ran out are taken back and delayed tasks that are due become ready, at most
``repair_limit`` of each, so a claim stays short however much there is to repair.

====================================  ====================================================================
where this kind of queue says         Headrace says
====================================  ====================================================================
tenant, from the caller's token       ``Queue(transport, tenant, name)``: the tenant is part of every key
command                               the queue's name
priority tier 0..9, 9 first           the levels ``9`` to ``0``, strict selection
PENDING                               ``queued``
IN_PROGRESS, workerId                 ``executing``, ``worker``
leaseSeconds                          ``lease_s``
inspectLimit                          ``repair_limit``
nack                                  a settlement with the outcome ``retry``
attempts, maxAttempts                 ``retry_count`` + 1, ``max_retries`` + 1: the first attempt is no retry
delayed set, visibleAt                ``delayed``; a task in it is ``scheduled`` or ``retrying``
FAILED with error=MAX_ATTEMPTS        ``dead_letter`` with the reason ``max_retries_exceeded``
idempotencyKey, retention window      ``NewTask.idempotency_key``, ``idempotency_window_s``
====================================  ====================================================================
"""

from __future__ import annotations

from headrace import Level, QueueConfig, RetryPolicy

MAX_ATTEMPTS = 5

CONFIG = QueueConfig(
    "commands",
    levels=tuple(Level(str(tier), max_retries=MAX_ATTEMPTS - 1) for tier in range(9, -1, -1)),
    default_level="5",
    retry=RetryPolicy(base_s=1.0, max_s=300.0, timeout_factor=1.0),
    lease_s=30.0,
    heartbeat_s=10.0,
    repair_limit=200,
    # Only the number of attempts decides here, whatever ended them.
    max_crashes=1000,
    idempotency_window_s=86_400.0,
)
