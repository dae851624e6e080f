"""asynq, for Go."""

from benchmarks.peer import Peer, lengths

PEER = Peer(
    name="asynq",
    title="asynq",
    language="Go",
    toolchain="go",
    worker="{root}/bench worker",
    producer="{root}/bench",
    remaining=lengths(("LLEN", "asynq:{default}:pending"), ("LLEN", "asynq:{default}:active")),
    concurrency=100,
    share=0.3,
    packages=("github.com/hibiken/asynq", "github.com/redis/go-redis/v9"),
    delivery="at least once",
    lease="yes, 30 s, renewed",
    fencing="no",
    settings="Concurrency {concurrency}, defaults otherwise (polls every second when idle); bulk: 32 goroutines",
)
