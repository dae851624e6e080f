"""taskiq, for asyncio, over Redis streams."""

from typing import Any

from benchmarks.peer import Peer


def _remaining(client: Any, total: int) -> int:
    (group,) = client.xinfo_groups("taskiq")
    return int(group["lag"]) + int(group["pending"])


PEER = Peer(
    name="taskiq",
    title="taskiq (streams)",
    language="Python",
    toolchain="python",
    worker="{python} -m taskiq worker benchmarks.peers.taskiq.tasks:broker --workers 1 "
    "--max-async-tasks {concurrency} --log-level ERROR",
    producer="{python} -m benchmarks.peers.taskiq.produce",
    remaining=_remaining,
    concurrency=50,
    share=0.1,
    packages=("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"),
    delivery="at least once",
    lease="idle timeout of 10 min, not renewed",
    fencing="no",
    settings="max-async-tasks {concurrency}, uvloop, hiredis, acknowledged when saved; bulk: 8 calls at once",
)
