"""One worker process. `SimpleWorker` runs jobs itself; RQ's default forks for each, which is far slower."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found"

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.peers.programs import redis_url

if __name__ == "__main__":
    connection = Redis.from_url(redis_url())
    SimpleWorker([Queue(connection=connection)], connection=connection).work(logging_level="ERROR")
