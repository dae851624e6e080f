"""What bounds each script, from reading it: to be kept true with every change to the Lua files."""

from __future__ import annotations

from headrace.queue.queue import MAX_NEW_TASKS_PER_CALL, MAX_RETURNS_PER_CALL, MAX_TASKS_PER_CALL

BOUNDS: tuple[tuple[str, str, str], ...] = (
    # script, what its work grows with, what keeps that small
    ("enqueue", "tasks in the call; levels and capability sets of the whole batch",
     f"{MAX_NEW_TASKS_PER_CALL} tasks and 1 MiB per call; larger batches are sent in pieces; 32 levels, 64 sets"),
    ("claim", "tasks wanted; due tasks and expired leases; levels × lines",
     f"{MAX_TASKS_PER_CALL} tasks per claim; `repair_limit` (20) of each; 32 levels × 64 sets × 2 lines"),
    ("settle", "settlements in the call", f"{MAX_TASKS_PER_CALL} per call"),
    ("heartbeat", "leases and progress reports of one worker",
     f"{MAX_TASKS_PER_CALL} leases per call; one progress report per lease"),
    ("forward", "due tasks", f"`limit`, {MAX_TASKS_PER_CALL}"),
    ("reclaim", "expired leases; silent workers", f"`limit`, {MAX_RETURNS_PER_CALL} of each"),
    ("promote", "tasks that waited too long; lines",
     "each rule's `batch` (100 and 50) × 64 sets × 2 lines, then sorted"),
    ("purge", "finished tasks, dead letters, dead workers; levels × lines",
     f"`limit`, {MAX_TASKS_PER_CALL} of each; 32 levels × 64 sets × 2 lines"),
    ("replay", "dead letters", f"{MAX_RETURNS_PER_CALL} per call"),
    ("cancel", "ids in the call", f"{MAX_TASKS_PER_CALL} per call"),
    ("drain", "workers in the call", f"{MAX_TASKS_PER_CALL} per call"),
    ("pause, configure", "live workers, each of which is woken",
     "the number of workers; 32 levels × 64 sets × 2 lines"),
    ("stats", "levels × lines; live workers; latency samples", "32 × 64 × 2; the number of workers; 1,000"),
    ("position", "levels × lines", "32 × 64 × 2, each in the logarithm of its tasks"),
    ("watch", "fields of one task", "50 attempts of history, 32 watchers"),
)  # fmt: skip
