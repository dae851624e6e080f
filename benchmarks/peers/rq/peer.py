"""RQ, for Python."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="rq",
    title="RQ",
    language="Python",
    toolchain="python",
    worker="{python} -m benchmarks.peers.rq.worker",
    producer="{python} -m benchmarks.peers.rq.produce",
    remaining=lengths(
        ("LLEN", "rq:queue:default"), ("LLEN", "rq:queue:default:intermediate"), ("ZCARD", "rq:wip:default")
    ),
    concurrency=1,
    share=0.015,
    packages=("rq", "redis", "hiredis"),
    delivery="at most once (with Retry: at least once)",
    lease="a heartbeat per job",
    fencing="no",
    settings="SimpleWorker (no fork per job), result_ttl 0, hiredis; bulk: enqueue_many of 1000",
)
