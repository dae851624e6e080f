"""What the operator tells Prometheus of queues: one by one, and of many as one."""

from __future__ import annotations

import asyncio

import pytest

from headrace.model.figures import LevelCounters, WorkerPulse
from headrace.model.states import WorkerState
from headrace.queue.inspection import Inspector
from headrace_operator.controllers.keeper import Keeper
from headrace_operator.metrics.fold import OTHER, Fold
from headrace_operator.metrics.page import MetricsPage
from headrace_operator.metrics.queue_figures import QueueView
from tests.operator.builders import counters, out_of_reach, pulse, queue_view, told
from tests.support.bench import CONFIG, WORKER, open_bench
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

FOLDED = "headrace_metrics_queues_folded"


class Operator:
    """A leader's page, and the queues that it is to tell of."""

    def __init__(self, max_queues: int) -> None:
        self.views: list[QueueView] = []
        self.page = MetricsPage(lambda: True, max_queues)
        self.page.lead(lambda: list(self.views))

    async def tells(self, *views: QueueView) -> dict[tuple[str, ...], float]:
        """What is read while its queues are like this."""
        self.views = list(views)
        return await told(self.page)


@pytest.fixture
def operator_with():
    made = []

    def with_room_for(max_queues):
        made.append(Operator(max_queues))
        return made[-1]

    yield with_room_for
    for each in made:
        each.page.close()


@pytest.fixture
def operator(operator_with):
    return operator_with(500)


def of_queue(found, queue, namespace="shop"):
    """By metric and labels, less namespace and queue."""
    return {(name, *labels[2:]): value for (name, *labels), value in found.items() if labels[:2] == [namespace, queue]}


# ── one by one ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_is_told_of_with_all_its_figures(operator):
    view = queue_view(
        "orders", delayed=3, dead_letter=4, finished=5, workers_dead=1, paused=True,
        workers=(
            WorkerPulse("a", WorkerState.ACTIVE, 2, 5, False, "a", 0.0),
            WorkerPulse("b", WorkerState.ACTIVE, 0, 3, False, "b", 0.0),
            WorkerPulse("c", WorkerState.DRAINING, 4, 4, False, "c", 0.0),
        ),
        counters=counters(99, LevelCounters("high", 1, 2, 3, 4, 5, 6, 7), promoted=8, orphans=9),
    )  # fmt: skip
    assert of_queue(await operator.tells(view), "orders") == {
        ("headrace_queue_depth", "high"): 0,
        ("headrace_queue_depth", "low"): 1,
        ("headrace_queue_oldest_age_seconds", "high"): 0,
        ("headrace_queue_oldest_age_seconds", "low"): 10,
        ("headrace_queue_paused",): 1,
        ("headrace_queue_backend_reachable",): 1,
        ("headrace_task_state_total", "queued"): 1,
        ("headrace_task_state_total", "delayed"): 3,
        ("headrace_task_state_total", "executing"): 2,
        ("headrace_task_state_total", "dead_letter"): 4,
        ("headrace_task_state_total", "finished"): 5,
        ("headrace_tasks_enqueued_total",): 99,
        ("headrace_tasks_completed_total", "high"): 1,
        ("headrace_tasks_completed_total", "low"): 0,
        ("headrace_tasks_failed_total", "high", "permanent"): 2,
        ("headrace_tasks_failed_total", "high", "max_retries_exceeded"): 3,
        ("headrace_tasks_failed_total", "high", "poison"): 4,
        ("headrace_tasks_failed_total", "low", "permanent"): 0,
        ("headrace_tasks_failed_total", "low", "max_retries_exceeded"): 0,
        ("headrace_tasks_failed_total", "low", "poison"): 0,
        ("headrace_tasks_dlq_total", "high"): 7,
        ("headrace_tasks_dlq_total", "low"): 0,
        ("headrace_task_retries_total", "high", "error"): 5,
        ("headrace_task_retries_total", "high", "timeout"): 6,
        ("headrace_task_retries_total", "high", "lease_expired"): 7,
        ("headrace_task_retries_total", "low", "error"): 0,
        ("headrace_task_retries_total", "low", "timeout"): 0,
        ("headrace_task_retries_total", "low", "lease_expired"): 0,
        ("headrace_tasks_promoted_total", "low", "high"): 8,
        ("headrace_orphans_repaired_total",): 9,
        ("headrace_workers_total", "active"): 2,
        ("headrace_workers_total", "draining"): 1,
        ("headrace_workers_total", "dead"): 1,
        ("headrace_worker_capacity_used_ratio",): 0.25,
    }


async def test_workers_that_have_claimed_ahead_are_full_and_no_fuller(operator):
    ahead = WorkerPulse("a", WorkerState.ACTIVE, 40, 5, False, "a", 0.0)
    idle = WorkerPulse("b", WorkerState.ACTIVE, 0, 5, False, "b", 0.0)
    found = await operator.tells(queue_view("orders", workers=(ahead, idle)))
    assert found["headrace_worker_capacity_used_ratio", "shop", "orders"] == 0.5


async def test_without_an_active_worker_there_is_no_ratio(operator):
    draining = WorkerPulse("a", WorkerState.DRAINING, 1, 5, False, "a", 0.0)
    found = await operator.tells(queue_view("orders", workers=()), queue_view("mails", workers=(draining,)))
    assert not [key for key in found if key[0] == "headrace_worker_capacity_used_ratio"]


async def test_of_a_queue_out_of_reach_only_that_is_told(operator):
    found = await operator.tells(out_of_reach(queue_view("orders")), queue_view("mails"))
    assert of_queue(found, "orders") == {("headrace_queue_backend_reachable",): 0}
    assert of_queue(found, "mails")["headrace_queue_backend_reachable",] == 1


async def test_of_a_queue_of_which_nothing_is_known_nothing_is_told(operator):
    found = await operator.tells(QueueView("shop", "orders", "2030-01-01T00:00:00Z", None, None))
    assert found == {("headrace_operator_leader",): 1, (FOLDED,): 0}


async def test_whatever_a_name_is_the_page_can_be_read(operator):
    name = 'a"b\\c\nd'
    found = await operator.tells(queue_view(name))
    assert found["headrace_queue_depth", "shop", name, "low"] == 1


async def test_an_outage_is_told_as_one_and_not_as_zero(operator):
    with RedisServer() as server:
        async with open_bench(server, "shop", CONFIG, WORKER) as bench:
            keeper = Keeper(bench.queue, Inspector(bench.transport, bench.queue), lambda: None)
            assert (keeper.is_reachable, keeper.current_pulse) == (None, None)
            keeping = asyncio.create_task(keeper.run())

            def view():
                return QueueView("shop", "orders", "", keeper.is_reachable, keeper.current_pulse)

            async def is_well():
                return (await operator.tells(view())).get(("headrace_queue_depth", "shop", "orders", "high")) == 3

            async def is_out_of_reach():
                found = of_queue(await operator.tells(view()), "orders")
                return found == {("headrace_queue_backend_reachable",): 0}

            try:
                await bench.put("high", count=3)
                await eventually(is_well, message="its tasks were not told")
                server.stop()
                await eventually(is_out_of_reach, message="the outage was not told")
                server.start()
                await bench.queue.define(CONFIG)
                await bench.put("high", count=3)
                await eventually(is_well, 60.0, "it was not told that it is over")
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)


# ── many as one ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_oldest_queues_have_series_of_their_own_whatever_comes_and_in_whatever_order(operator_with):
    operator = operator_with(2)
    old, older, oldest = (queue_view(name, age=age) for name, age in (("a", 1), ("b", 2), ("c", 3)))
    newest = queue_view("d", "other-namespace")
    for views in ((old, oldest, older, newest), (newest, out_of_reach(oldest), old, older)):
        found = await operator.tells(*views)
        assert found[FOLDED,] == 2
        told_of = {key[1:3] for key in found if key[0] == "headrace_queue_backend_reachable"}
        assert told_of == {("shop", "c"), ("shop", "b"), ("shop", OTHER), ("other-namespace", OTHER)}


async def test_folded_figures_are_those_of_all_of_them(operator_with):
    busy = WorkerPulse("a", WorkerState.ACTIVE, 5, 5, False, "a", 0.0)
    idle = WorkerPulse("b", WorkerState.ACTIVE, 0, 15, False, "b", 0.0)
    found = await operator_with(0).tells(
        queue_view("a", levels=(("high", 2, 400.0), ("low", 3, 950.0)), executing=1, workers=(busy,)),
        queue_view("b", levels=(("high", 5, 100.0), ("bulk", 7, None)), executing=2, workers=(idle,), paused=True),
    )
    folded = of_queue(found, OTHER)
    assert {key[1]: value for key, value in folded.items() if key[0] == "headrace_queue_depth"} == {
        "high": 7,
        "low": 3,
        "bulk": 7,
    }
    assert folded["headrace_queue_oldest_age_seconds", "high"] == 900
    assert folded["headrace_task_state_total", "queued"] == 17
    assert folded["headrace_task_state_total", "executing"] == 3
    assert folded["headrace_queue_paused",] == 1
    assert folded["headrace_worker_capacity_used_ratio",] == 0.25


async def test_one_queue_out_of_reach_can_be_seen_among_those_that_are_folded(operator_with):
    found = await operator_with(0).tells(queue_view("a"), out_of_reach(queue_view("b")))
    assert found["headrace_queue_backend_reachable", "shop", OTHER] == 0
    assert found["headrace_queue_depth", "shop", OTHER, "low"] == 1


def counted(name, enqueued, completed=0, **more):
    return queue_view(name, counters=counters(enqueued, LevelCounters("high", completed)), **more)


async def enqueued(operator, *views):
    return (await operator.tells(*views)).get(("headrace_tasks_enqueued_total", "shop", OTHER))


async def test_a_folded_counter_grows_by_what_is_counted_and_by_nothing_else(operator_with):
    operator = operator_with(0)
    assert await enqueued(operator, counted("a", 1000), counted("b", 50)) == 0
    assert await enqueued(operator, counted("a", 1007), counted("b", 51)) == 8
    # Out of reach, and back.
    assert await enqueued(operator, out_of_reach(counted("a", 0)), counted("b", 51)) == 8
    assert await enqueued(operator, counted("a", 1010), counted("b", 51)) == 11
    # One that comes with a past, and one that goes.
    assert await enqueued(operator, counted("a", 1010), counted("b", 51), counted("c", 5000)) == 11
    assert await enqueued(operator, counted("b", 51), counted("c", 5001)) == 12
    # A Redis that has lost its data.
    assert await enqueued(operator, counted("b", 51), counted("c", 2)) == 14


async def test_a_queue_that_leaves_the_fold_takes_nothing_with_it(operator_with):
    operator = operator_with(1)
    first, second, third = (counted(name, 100, age=age) for name, age in (("a", 3), ("b", 2), ("c", 1)))
    assert await enqueued(operator, first, second, third) == 0
    grown = counted("b", 130, age=2)
    assert await enqueued(operator, first, grown, third) == 30
    found = await operator.tells(grown, third)
    assert found["headrace_tasks_enqueued_total", "shop", OTHER] == 30
    assert found["headrace_tasks_enqueued_total", "shop", "b"] == 130


async def test_a_new_term_begins_to_add_up_anew(operator_with):
    operator = operator_with(0)
    await enqueued(operator, counted("a", 10))
    assert await enqueued(operator, counted("a", 15)) == 5
    operator.page.follow()
    assert OTHER not in {label for key in await told(operator.page) for label in key}
    operator.page.lead(lambda: list(operator.views))
    assert await enqueued(operator, counted("a", 15)) == 0


def test_levels_without_end_do_not_become_series_without_end():
    fold = Fold()

    def report(offset):
        views = (
            queue_view(f"q-{number}", levels=((f"level-{offset + number}", 1, None),), counters=counters(number))
            for number in range(1000)
        )
        return fold.add_up(views)

    report(0)
    whole = report(5000)
    depths = {key[1]: value for key, value in whole.gauges.items() if key[0] == "headrace_queue_depth"}
    assert sum(depths.values()) == 1000
    assert set(depths) == {OTHER}
    assert len({key[1] for key in whole.counters if key[0] == "headrace_tasks_completed_total"}) <= 33


async def test_of_ten_thousand_queues_none_is_lost_and_the_page_keeps_its_size(operator_with):
    views = [
        QueueView(f"ns-{number % 20}", f"q-{number:05d}", f"2030-01-01T{number // 600:02d}:00:00Z", True,
                  pulse(levels=(("high", number, 0.0),)))
        for number in range(10_000)
    ]  # fmt: skip
    operator = operator_with(500)
    found = await operator.tells(*views)
    assert found[FOLDED,] == 9500
    depths = {key[1:]: value for key, value in found.items() if key[0] == "headrace_queue_depth"}
    assert sum(depths.values()) == sum(range(10_000))
    assert len(depths) == 500 + 20
    few = await operator_with(500).tells(*views[:500])
    assert len(found) <= len(few) * 520 / 500
