"""What runs beside a poison task goes down with its worker, and must not be taken for poison itself."""

from __future__ import annotations

from headrace import TaskState
from headrace.model.config import Level, QueueConfig
from headrace.model.task import ClaimedTask
from tests.support.bench import Bench, open_bench
from tests.support.redis_server import RedisServer

CONFIG = QueueConfig("jobs", levels=(Level("only", max_retries=20),))
SLOTS = 5


async def _hold_all_there_is_room_for(bench: Bench, worker: str) -> list[ClaimedTask]:
    held: list[ClaimedTask] = []
    while len(held) < SLOTS and (more := await bench.claim(SLOTS - len(held), worker=worker)):
        held += more
    return held


async def test_bystanders_of_poison_are_completed(frozen_redis: RedisServer, tenant: str) -> None:
    async with open_bench(frozen_redis, tenant, CONFIG) as bench:
        poison, *bystanders = await bench.put("only", count=SLOTS)
        for round_number in range(20):
            worker = f"worker-{round_number}"
            await bench.register(worker)
            held = await _hold_all_there_is_room_for(bench, worker)
            if poison in (task.task_id for task in held):
                bench.clock.advance(CONFIG.lease_s + 1)  # the worker is gone
            else:
                for task in held:
                    await bench.complete(task)
            await bench.queue.reclaim()
            bench.clock.advance(60)  # every backoff is over
        assert await bench.state(poison) is TaskState.DEAD_LETTER
        assert [await bench.state(task_id) for task_id in bystanders] == [TaskState.COMPLETED] * len(bystanders)
