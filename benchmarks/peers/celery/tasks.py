"""The app, the no-op and the probe."""

# Type-checked where its library is not installed.
# mypy: disable-error-code="import-not-found, untyped-decorator"

from celery import Celery

from benchmarks.peers.programs import answer_probe, redis_url

app = Celery("bench", broker=redis_url())
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task
def noop(payload: str) -> None:
    """Nothing."""


@app.task
def probe(payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)
