"""The broker, the no-op and the probe."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found, untyped-decorator"

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.programs import answer_probe, redis_url

broker = RedisBroker(url=redis_url())
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(payload: str) -> None:
    """Nothing."""


@dramatiq.actor
def probe(payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)
