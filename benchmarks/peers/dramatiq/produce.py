"""Enqueue. dramatiq has no call for many messages, and more threads do not make it faster."""

from benchmarks.peers.dramatiq.tasks import broker, noop, probe
from benchmarks.peers.programs import PAYLOAD, produce


def bulk(count: int) -> None:
    """One after the other."""
    for _ in range(count):
        noop.send(PAYLOAD)


if __name__ == "__main__":
    broker.client.ping()
    produce(bulk=bulk, single=noop.send, probe=probe.send)
