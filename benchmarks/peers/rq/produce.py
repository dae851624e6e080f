"""Enqueue."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found"

from typing import Any

from redis import Redis
from rq import Queue

from benchmarks.peers.programs import PAYLOAD, produce, redis_url
from benchmarks.peers.rq import tasks

BATCH = 1000

queue = Queue(connection=Redis.from_url(redis_url()))


def single(payload: str) -> Any:
    """One no-op."""
    return queue.enqueue(tasks.noop, payload, result_ttl=0)


def probe(payload: str) -> Any:
    """One probe."""
    return queue.enqueue(tasks.probe, payload, result_ttl=0)


def bulk(count: int) -> None:
    """In pipelines of a thousand."""
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        queue.enqueue_many([Queue.prepare_data(tasks.noop, (PAYLOAD,), result_ttl=0) for _ in range(size)])


if __name__ == "__main__":
    queue.connection.ping()
    produce(bulk=bulk, single=single, probe=probe)
