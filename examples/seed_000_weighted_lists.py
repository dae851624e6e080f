"""A queue with five weighted levels, in which no level is ever shut out.

Every claim draws a level at random, by weight: ``critical`` (1.0) comes up ten times as often as ``idle``
(0.1). A level's weight grows while its oldest task waits: by half after 30 seconds, and up to double after
90. Levels that are empty take no part in the draw. Within a level the oldest task goes first.

====================================  ====================================================================
where this kind of queue says         Headrace says
====================================  ====================================================================
priority 100, 75, 50, 25, 0           the levels ``critical``, ``high``, ``normal``, ``low``, ``idle``
base weight                           ``Level.weight``
anti-starvation boost                 `Boost`: from ``after_s`` on, the weight is multiplied by ``factor``
LPUSH and BRPOP on a list per level   `Queue.enqueue` and `Queue.claim`; oldest first
queue_stats, last_enqueue:100         ``last_enqueue_at_s`` of a level in ``Inspector.stats()``
queue_stats, last_dequeue:100         ``last_dequeue_at_s`` of a level in ``Inspector.stats()``
====================================  ====================================================================
"""

from __future__ import annotations

from headrace import Boost, Level, QueueConfig

CONFIG = QueueConfig(
    "weighted-lists",
    levels=(
        Level("critical", weight=1.0),
        Level("high", weight=0.7),
        Level("normal", weight=0.4),
        Level("low", weight=0.2),
        Level("idle", weight=0.1),
    ),
    selection="weighted",
    boosts=(
        Boost(after_s=30, factor=1.5),
        Boost(after_s=60, factor=1.75),
        Boost(after_s=90, factor=2.0),
    ),
)
