"""Every key name, in one place.

All keys of a queue begin with ``hr:{tenant/queue}:``. The braces are Redis Cluster's hash tag: one queue
lives in one slot, so every transition is one script on one node. Names are checked before they get here
(`headrace.model.names`), so a tenant cannot spell another tenant's prefix.

=====================  ======  ==========================================================================
key                    type    holds
=====================  ======  ==========================================================================
config                 hash    the configuration (setting by setting for scripts, JSON for people), pause flag;
                               room: what may come to wait before the operator is told; held:DEPLOYMENT: until
                               when its new workers are not let in
ready:LEVEL:LINE       zset    waiting ids; score = the moment from which they wait, in µs
delayed                zset    scheduled and retrying ids; score = when they are due
leases                 zset    executing ids; score = when the lease ends, never past the attempt's timeout
dead                   zset    dead-lettered ids; score = when
finished               zset    completed, failed, cancelled ids; score = when their retention ends
task:ID                hash    msg (JSON) and spec (level, max_retries, timeout_us, created_us, capability set),
                               which never change; the state in fields of its own
idempotency:KEY        string  task id; expires with the window
sent:CALL              string  an enqueue call made lately, where finished tasks do not stay; expires
workers, dead_workers  zset    worker ids; score = last heartbeat, or when it was declared dead
worker:ID              hash    state, load, capacity, capabilities, idle since, …
stats                  hash    counters, those of how attempts end also as KIND:LEVEL or KIND:LEVEL:REASON;
                               last_enqueue and last_dequeue per level
capsets                set     the lines in use
wake:LINE              list    tokens that idle workers block on; wake-worker:ID is one worker's own
throughput:SLOT        hash    completed and failed in ten seconds; expires
service:LEVEL          hash    handlers that ended lately, and how long they took in all
latencies              list    the last thousand "wait:run" times, in µs
events                 stream  every transition, capped; one entry per script call
confirmed              string  nothing; written by calls that wait for replicas; expires
=====================  ======  ==========================================================================

LINE is a capability set, sorted and joined by commas; with a ``!`` behind it, it is the line of those tasks of
the set that one more crash would set aside as poison. A task that waits for its first claim has no ``state`` yet:
it is queued.

Channels: ``…:cancel`` tells workers which running task to stop; ``…:bell`` tells an operator that workers are missing;
``hr:inbox:…`` tells one client which of the tasks it waits for have ended.
"""

from __future__ import annotations

import uuid

from headrace.model.names import check_name

FIXED = (
    "config",
    "workers",
    "stats",
    "capsets",
    "events",
    "delayed",
    "leases",
    "dead",
    "finished",
    "dead_workers",
    "latencies",
)
"""In the order in which ``lua/lib/base.lua`` expects them as KEYS."""
NEEDED_BY_ENQUEUE = 6
"""The first of them are all that an enqueue touches."""


class QueueKeys:
    """The keys of one tenant's queue."""

    def __init__(self, tenant: str, queue: str) -> None:
        self.prefix = f"hr:{{{check_name('tenant', tenant)}/{check_name('queue', queue)}}}:"
        self.fixed = tuple(f"{self.prefix}{name}".encode() for name in FIXED)

    @property
    def config(self) -> str:
        return f"{self.prefix}config"

    @property
    def dead(self) -> str:
        return f"{self.prefix}dead"

    @property
    def capsets(self) -> str:
        return f"{self.prefix}capsets"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers"

    @property
    def dead_workers(self) -> str:
        return f"{self.prefix}dead_workers"

    @property
    def cancel_channel(self) -> str:
        return f"{self.prefix}cancel"

    @property
    def bell_channel(self) -> str:
        return f"{self.prefix}bell"

    def task(self, task_id: str) -> str:
        return f"{self.prefix}task:{task_id}"

    def worker(self, worker: str) -> str:
        return f"{self.prefix}worker:{worker}"

    def wake(self, capset: str) -> str:
        return f"{self.prefix}wake:{capset}"

    def worker_wake(self, worker: str) -> str:
        return f"{self.prefix}wake-worker:{worker}"


BELL_CHANNELS = "hr:{*}:bell"
"""A pattern for the bells of all queues."""


def queue_names_key(tenant: str) -> str:
    """The set of a tenant's queue names."""
    return f"hr:{{{check_name('tenant', tenant)}}}:queues"


def confirmation_key(key_of_queue: bytes) -> bytes:
    """The key that is written to have an offset to wait for, beside another key of the same queue."""
    prefix, _, _ = key_of_queue.partition(b"}:")
    return prefix + b"}:confirmed"


def new_inbox_channel() -> str:
    """A channel nobody else can guess."""
    return f"hr:inbox:{uuid.uuid4().hex}"
