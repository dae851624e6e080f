"""What bounds each script, from reading it: to be kept true with every change to the Lua files."""

from __future__ import annotations

BOUNDS: tuple[tuple[str, str, str], ...] = (
    # script, what its work grows with, what keeps that small
    ("enqueue", "tasks in the call; levels and capability sets of the whole batch",
     "200 tasks and 1 MiB per call; larger batches are sent in pieces; 32 levels, 64 sets"),
    ("claim", "tasks wanted; due tasks and expired leases; levels × lines",
     "100 tasks per claim; `repair_limit` (20) of each; 32 levels × 64 sets × 2 lines"),
    ("settle", "settlements in the call", "100 per call"),
    ("heartbeat", "leases and progress reports of one worker", "100 leases per call; one progress report per lease"),
    ("forward", "due tasks", "`limit`, 100"),
    ("reclaim", "expired leases; silent workers", "`limit`, 50 of each"),
    ("promote", "tasks that waited too long; lines",
     "each rule's `batch` (100 and 50) × 64 sets × 2 lines, then sorted"),
    ("purge", "finished tasks, dead letters, dead workers; levels × lines",
     "`limit`, 100 of each; 32 levels × 64 sets × 2 lines"),
    ("replay", "dead letters", "50 per call"),
    ("cancel", "ids in the call", "100 per call"),
    ("drain", "workers in the call", "100 per call"),
    ("pause, configure", "live workers, each of which is woken",
     "the number of workers; 32 levels × 64 sets × 2 lines"),
    ("stats", "levels × lines; live workers; latency samples", "32 × 64 × 2; the number of workers; 1,000"),
    ("position", "levels × lines", "32 × 64 × 2, each in the logarithm of its tasks"),
    ("watch", "fields of one task", "50 attempts of history, 32 watchers"),
)  # fmt: skip
