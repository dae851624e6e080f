"""Three queues of work in proportion 6 : 3 : 1, or in strict order; crashes are healed by short leases.

`CONFIG_WEIGHTED` gives ``critical`` 60 % of the claims, ``default`` 30 % and ``low`` 10 %, as long as all of
them have work. `CONFIG_STRICT` empties the higher level first. In both, a worker holds a task by a lease of
30 seconds that its heartbeat renews every 10; a lease that runs out puts the task back.

====================================  ====================================================================
where this kind of queue says         Headrace says
====================================  ====================================================================
Queues: critical 6, default 3, low 1  ``Level.weight``, ``selection="weighted"``
StrictPriority: true                  ``selection="strict"``
pending, active                       ``queued``, ``executing``
scheduled, retry                      ``scheduled``, ``retrying``
archived                              ``dead_letter``, kept until somebody deals with it
forwarder                             `Queue.forward`, and every claim in passing
recoverer                             `Queue.reclaim`, and every claim in passing
heartbeater                           `Queue.heartbeat`
subscriber                            the cancel channel of the queue
janitor                               `Queue.purge`, after ``result_retention_s``
====================================  ====================================================================
"""

from __future__ import annotations

import msgspec

from headrace import Level, QueueConfig

CONFIG_WEIGHTED = QueueConfig(
    "titan",
    levels=(
        Level("critical", weight=6),
        Level("default", weight=3),
        Level("low", weight=1),
    ),
    default_level="default",
    selection="weighted",
    lease_s=30,
    heartbeat_s=10,
    result_retention_s=3600,
    dead_letter_retention_s=None,
)

CONFIG_STRICT = msgspec.structs.replace(CONFIG_WEIGHTED, name="titan-strict", selection="strict")
