"""BullMQ, for Node."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="bullmq",
    title="BullMQ",
    language="Node",
    toolchain="node",
    worker="node {here}/worker.js",
    producer="node {here}/produce.js",
    remaining=lengths(("LLEN", "bull:bench:wait"), ("LLEN", "bull:bench:active")),
    concurrency=200,
    share=0.5,
    packages=("bullmq", "ioredis"),
    delivery="at least once",
    lease="yes, a lock of 30 s, renewed",
    fencing="yes, the lock's token",
    settings="concurrency {concurrency}, removeOnComplete, ioredis; bulk: addBulk of 250, 4 calls at once",
)
