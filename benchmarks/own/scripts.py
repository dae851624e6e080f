"""How long each script holds Redis up while many tasks wait, in the batches that Headrace sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from benchmarks.measures import Figures
from benchmarks.own.queues import BATCH, CAPACITY, WORKER, Bench, bench, completed
from benchmarks.own.stopwatch import Stopwatch
from benchmarks.redis_server import Server
from headrace import Promotion
from headrace.model.outcomes import Outcome, Settlement
from headrace.queue.inspection import Inspector
from headrace.queue.queue import MAX_NEW_TASKS_PER_CALL, MAX_RETURNS_PER_CALL, MAX_TASKS_PER_CALL, Queue

SOON_S = 2.0
"""When the leases, delays and retentions of the measures of repair are over: after all that prepares them."""
CLAIM_REPAIRS = 20
"""What a claim repairs before it claims."""
PROBLEM = '{"type":"Bench","message":"failed on purpose"}'


async def script_times(server: Server, *, waiting: int, samples: int, tell: Callable[[str], None]) -> list[Figures]:
    """One row per script and batch."""
    watch = Stopwatch(server)
    async with bench(server) as own:
        tell(f"script times: a queue of {waiting:,} tasks is filled")
        queue = await own.queue("bench", "bench")
        await own.fill([queue], waiting)
        few = max(3, samples // 2)  # of the calls with large batches, which take longer to prepare than to run
        tell("script times: the way of a task")
        await _way_of_a_task(own, queue, watch, samples)
        await _large_batches(own, queue, watch, few)
        await _heartbeats(own, queue, watch, samples)
        await _looking_and_steering(own, queue, watch, samples)
        await _promotion(own, queue, watch, samples)
        tell("script times: repair")
        # In queues of their own, where things are over soon. The waiting tasks are on the same server.
        await _forwarding(own, await own.queue("bench", "forward"), watch, few)
        await _reclaiming(own, watch, few)
        await _purging(own, watch, few)
        await _replaying(own, await own.queue("bench", "replay"), watch, samples)
    return watch.rows()


async def _way_of_a_task(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    for _ in range(samples):
        await watch.time("enqueue, 1 task", queue.enqueue(own.new_tasks(1)))
        held = await watch.time("claim, 1 task", own.claim(queue, 1))
        await watch.time("settle, 1 task", queue.settle(completed(held)))
    for _ in range(samples):
        held = await watch.time(f"claim, {BATCH} tasks", own.claim(queue, BATCH))
        await watch.time(f"settle, {BATCH} tasks", queue.settle(completed(held)))
        await own.fill([queue], BATCH)


async def _large_batches(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    for _ in range(samples):
        tasks = own.new_tasks(MAX_NEW_TASKS_PER_CALL)
        await watch.time(f"enqueue, {len(tasks)} tasks", queue.enqueue(tasks))
        held = await own.claim_many(queue, MAX_TASKS_PER_CALL)
        await watch.time(f"settle, {len(held)} tasks", queue.settle(completed(held)))
        cancelled = own.new_tasks(MAX_TASKS_PER_CALL)
        await queue.enqueue(cancelled)
        ids = [task.task_id for task in cancelled]
        await watch.time(f"cancel, {len(ids)} tasks", queue.cancel(ids))


async def _heartbeats(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    held = await own.claim_many(queue, MAX_TASKS_PER_CALL)
    leases = [(task.task_id, task.token) for task in held]
    for _ in range(samples):
        beat = queue.heartbeat(WORKER, capacity=CAPACITY, held=leases)
        await watch.time(f"heartbeat, {len(leases)} leases", beat)
    await queue.settle(completed(held))


async def _looking_and_steering(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    inspector = Inspector(own.transport, queue)
    for _ in range(samples):
        (task,) = own.new_tasks(1)
        await queue.enqueue([task])
        await watch.time("stats", inspector.stats())
        await watch.time("position of the last task", inspector.position(task.task_id))
        await watch.time("watch, 1 task", inspector.task(task.task_id))
        await watch.time("cancel, 1 task", queue.cancel([task.task_id]))
        await watch.time("drain, 1 worker", queue.drain([WORKER], force=True))
        await queue.undrain([WORKER])
        await watch.time("pause", queue.pause())
        await queue.resume()


async def _promotion(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    # The default rules, but for the time: here everything has waited for long enough.
    rules = (
        Promotion("low", "medium", after_s=SOON_S, batch=100),
        Promotion("medium", "high", after_s=SOON_S, batch=50),
    )
    await own.queue("bench", queue.name, promotions=rules)
    for _ in range(samples):
        await watch.time("promote, 50 tasks", queue.promote(force=True))


async def _forwarding(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    await own.enqueue_delayed(queue, samples * (MAX_TASKS_PER_CALL + CLAIM_REPAIRS), SOON_S)
    await asyncio.sleep(SOON_S)
    for _ in range(samples):
        await watch.time(f"forward, {MAX_TASKS_PER_CALL} tasks", queue.forward())
    for _ in range(samples):
        name = f"claim, {BATCH} tasks, after repairing {CLAIM_REPAIRS}"
        await queue.settle(completed(await watch.time(name, own.claim(queue, BATCH))))


async def _reclaiming(own: Bench, watch: Stopwatch, samples: int) -> None:
    queue = await own.queue("bench", "reclaim", lease_s=SOON_S, heartbeat_s=SOON_S / 2)
    await own.fill([queue], samples * MAX_RETURNS_PER_CALL)
    await own.claim_many(queue, samples * MAX_RETURNS_PER_CALL)
    await asyncio.sleep(SOON_S)
    for _ in range(samples):
        await watch.time(f"reclaim, {MAX_RETURNS_PER_CALL} leases", queue.reclaim())


async def _purging(own: Bench, watch: Stopwatch, samples: int) -> None:
    queue = await own.queue("bench", "purge", result_retention_s=SOON_S)
    await own.fill([queue], samples * MAX_TASKS_PER_CALL)
    held = await own.claim_many(queue, samples * MAX_TASKS_PER_CALL)
    for start in range(0, len(held), MAX_TASKS_PER_CALL):
        await queue.settle(completed(held[start : start + MAX_TASKS_PER_CALL]))
    await asyncio.sleep(SOON_S)
    for _ in range(samples):
        await watch.time(f"purge, {MAX_TASKS_PER_CALL} tasks", queue.purge())


async def _replaying(own: Bench, queue: Queue, watch: Stopwatch, samples: int) -> None:
    for _ in range(samples):
        hopeless = [msgspec.structs.replace(task, max_retries=0) for task in own.new_tasks(MAX_RETURNS_PER_CALL)]
        await queue.enqueue(hopeless)
        held = await own.claim_many(queue, MAX_RETURNS_PER_CALL)
        await queue.settle([Settlement(task.task_id, task.token, Outcome.RETRY, PROBLEM) for task in held])
        await watch.time(f"replay, {MAX_RETURNS_PER_CALL} tasks", queue.replay(limit=MAX_RETURNS_PER_CALL))
        await queue.settle(completed(await own.claim_many(queue, MAX_RETURNS_PER_CALL)))
