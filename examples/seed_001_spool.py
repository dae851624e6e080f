"""A spool: strict levels, exponential backoff, and dead letters that wait for a person.

A failed task is tried again after 1, 2, 4, 8, … seconds, never more than 5 minutes apart. What still fails
after that is a bug that needs looking into, so dead letters are kept until somebody deals with them. A
worker counts as superfluous once it has been idle for `IDLE_BEFORE_SCALE_DOWN_S` without a break.

====================================  ====================================================================
where this kind of queue says         Headrace says
====================================  ====================================================================
pending                               ``queued``
processing                            ``executing``
retrying, completed, dead_letter      the same
ZADD with a timestamp, ZPOPMIN        `Queue.enqueue` and `Queue.claim`; oldest first within a level
baseDelay, maxDelay                   ``RetryPolicy.base_s``, ``RetryPolicy.max_s``
MaxRetries                            ``Level.max_retries``, or ``NewTask.max_retries`` for one task
idle, busy                            ``WorkerRecord.activity``; ``idle_since_s`` says since when
shutting_down                         the worker state ``draining``
idle threshold                        ``Queue.drain(idle_s=…)``
dead letter queue                     ``Inspector.dead_letters()``: id, payload, reason and time
throughput, latency percentiles       ``completed_last_minute``, ``wait`` and ``run`` in ``Inspector.stats()``
====================================  ====================================================================
"""

from __future__ import annotations

from headrace import Level, QueueConfig, RetryPolicy

IDLE_BEFORE_SCALE_DOWN_S = 120.0

CONFIG = QueueConfig(
    "spool",
    levels=(
        Level("critical"),
        Level("high"),
        Level("normal"),
        Level("low"),
    ),
    default_level="normal",
    retry=RetryPolicy(base_s=1.0, max_s=300.0, timeout_factor=1.0),
    dead_letter_retention_s=None,
)
