"""The queue, the no-op and the probe."""

from benchmarks.peers.programs import answer_probe, redis_url
from headrace import Headrace, QueueConfig

# Leases, fencing, promotion, statistics and events are as they come. Only results are not kept, because
# nobody asks for them here and no peer keeps them either.
app = Headrace(redis_url(), tenant="bench", queues=[QueueConfig("bench", result_retention_s=0)])


@app.task(queue="bench")
async def noop(payload: str) -> None:
    """Nothing."""


@app.task(queue="bench")
async def probe(payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)
