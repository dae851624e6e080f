"""The broker, the no-op and the probe."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found, untyped-decorator"

from taskiq_redis import RedisStreamBroker

from benchmarks.peers.programs import answer_probe, redis_url

broker = RedisStreamBroker(redis_url())


@broker.task
async def noop(payload: str) -> None:
    """Nothing."""


@broker.task
async def probe(payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)
