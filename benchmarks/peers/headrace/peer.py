"""Headrace itself, from this repository's environment."""

from typing import Any

from benchmarks.peer import Peer
from headrace.queue.keys import QueueKeys

_KEYS = QueueKeys("bench", "bench")


def _remaining(client: Any, total: int) -> int:
    return total - int(client.hget(f"{_KEYS.prefix}stats", "completed") or 0)


PEER = Peer(
    name="headrace",
    title="Headrace",
    language="Python",
    toolchain="own",
    worker="{python} -m headrace.cli.main worker benchmarks.peers.headrace.tasks:app --concurrency "
    "{concurrency} --log-level error",
    producer="{python} -m benchmarks.peers.headrace.produce",
    remaining=_remaining,
    concurrency=256,
    share=1.0,
    packages=("headrace", "redis", "hiredis", "uvloop"),
    delivery="at least once",
    lease="yes, 30 s, renewed",
    fencing="yes, a token per attempt",
    settings="concurrency {concurrency}, uvloop, hiredis, everything else as it comes; "
    "bulk: enqueue_many of 1000, 2 calls at once; one by one, and for the latency: task.blocking",
)
