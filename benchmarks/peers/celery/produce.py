"""Enqueue."""

from benchmarks.peers.celery.tasks import app, noop, probe
from benchmarks.peers.programs import PAYLOAD, produce

BATCH = 1000


def bulk(count: int) -> None:
    """Through one producer, in pipelines of a thousand."""
    with app.producer_pool.acquire() as producer, producer.batch(BATCH):
        for _ in range(count):
            noop.apply_async((PAYLOAD,), producer=producer)


if __name__ == "__main__":
    with app.producer_pool.acquire() as warm:  # connected before the clock starts
        warm.connection.default_channel.client.ping()
    produce(bulk=bulk, single=noop.delay, probe=probe.delay)
