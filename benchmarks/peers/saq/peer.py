"""SAQ, for asyncio."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="saq",
    title="SAQ",
    language="Python",
    toolchain="python",
    worker="{python} -m saq --quiet benchmarks.peers.saq.tasks.settings",
    producer="{python} -m benchmarks.peers.saq.produce",
    remaining=lengths(("ZCARD", "saq:default:incomplete")),
    concurrency=100,
    share=0.05,
    packages=("saq", "redis", "hiredis", "uvloop"),
    delivery="at least once (with retries)",
    lease="a sweep of stuck jobs by timeout",
    fencing="no",
    settings="concurrency {concurrency}, uvloop, hiredis, retries 3, ttl -1; "
    "bulk: 1000 calls at once, 32 operations in flight",
)
