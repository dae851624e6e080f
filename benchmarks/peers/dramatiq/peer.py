"""dramatiq, for Python, with threads."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="dramatiq",
    title="dramatiq",
    language="Python",
    toolchain="python",
    worker="{python} -m dramatiq --processes 1 --threads {concurrency} --worker-shutdown-timeout 2000 "
    "benchmarks.peers.dramatiq.tasks",
    producer="{python} -m benchmarks.peers.dramatiq.produce",
    remaining=lengths(("HLEN", "dramatiq:default.msgs")),
    concurrency=8,
    share=0.1,
    packages=("dramatiq", "redis", "hiredis"),
    environment={"dramatiq_queue_prefetch": "64"},
    delivery="at least once",
    lease="per worker, by heartbeat of 60 s",
    fencing="no",
    settings="{concurrency} threads, prefetch 64, hiredis; bulk: one by one",
)
