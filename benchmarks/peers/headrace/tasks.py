"""The queue, the no-op and the probe."""

from benchmarks.peers.programs import answer_probe, redis_url
from headrace import Headrace, QueueConfig

# As it comes: leases, fencing, promotion, statistics, events, and results that are kept for an hour.
app = Headrace(redis_url(), tenant="bench", queues=[QueueConfig("bench")])


@app.task(queue="bench")
async def noop(payload: str) -> None:
    """Nothing."""


@app.task(queue="bench")
async def probe(payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)
