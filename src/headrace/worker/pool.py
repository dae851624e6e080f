"""Which pool a worker belongs to, as its pod says. Whom nobody tells belongs to none."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.model.errors import InvalidConfig

NAMESPACE_VARIABLE = "HEADRACE_NAMESPACE"
POOL_VARIABLE = "HEADRACE_POOL"
QUEUE_NAMES_VARIABLE = "HEADRACE_QUEUE_NAMES"


class PoolMembership(msgspec.Struct, frozen=True):
    """The names under which Kubernetes knows a worker and its queues."""

    namespace: str
    pool: str
    task_queues: dict[str, str]
    """The names of TaskQueues that are called otherwise than their queue, by the queue's name."""

    def task_queue(self, queue: str) -> str:
        """The name of the TaskQueue that this queue belongs to."""
        return self.task_queues.get(queue, queue)


def membership(environment: Mapping[str, str], tenant: str) -> PoolMembership:
    """As the operator has put it into the pod's environment."""
    return PoolMembership(
        namespace=environment.get(NAMESPACE_VARIABLE) or tenant,
        pool=environment.get(POOL_VARIABLE, ""),
        task_queues=dict(_pairs(environment.get(QUEUE_NAMES_VARIABLE, ""))),
    )


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for item in filter(None, text.split(",")):
        queue, sign, task_queue = item.partition("=")
        if not (queue and sign and task_queue):
            raise InvalidConfig(QUEUE_NAMES_VARIABLE, f"has {item!r}; write queue=taskqueue, with commas between them")
        pairs.append((queue, task_queue))
    return pairs
