"""arq, for asyncio."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="arq",
    title="arq",
    language="Python",
    toolchain="python",
    worker="{python} -m benchmarks.peers.arq.worker",
    producer="{python} -m benchmarks.peers.arq.produce",
    remaining=lengths(("ZCARD", "arq:queue")),
    concurrency=50,
    share=0.04,
    packages=("arq", "redis", "hiredis", "uvloop"),
    delivery="at least once",
    lease="a key that expires with the job's timeout, not renewed",
    fencing="no",
    settings="max_jobs {concurrency}, queue_read_limit 1000, keep_result 0, uvloop, hiredis, "
    "poll_delay 0.5 s (default); bulk: 8 calls at once",
)
