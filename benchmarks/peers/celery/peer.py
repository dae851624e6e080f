"""Celery, for Python."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="celery",
    title="Celery",
    language="Python",
    toolchain="python",
    worker="{python} -m celery --app benchmarks.peers.celery.tasks worker --pool threads "
    "--concurrency {concurrency} --loglevel ERROR --without-gossip --without-mingle --without-heartbeat",
    producer="{python} -m benchmarks.peers.celery.produce",
    remaining=lengths(("LLEN", "celery"), ("HLEN", "unacked")),
    concurrency=8,
    share=0.03,
    packages=("celery", "kombu", "redis", "hiredis"),
    delivery="at least once (acks_late)",
    lease="visibility timeout of 1 h, not renewed",
    fencing="no",
    settings="threads pool of {concurrency}, acks_late, reject_on_worker_lost, prefetch multiplier 64, "
    "no gossip, mingle or heartbeat, results ignored, hiredis; bulk: producer.batch of 1000",
)
