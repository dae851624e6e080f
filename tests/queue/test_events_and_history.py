"""What can be read afterwards: the attempts of a task, and the stream of events."""

from __future__ import annotations

import msgspec

from headrace.model.outcomes import Outcome
from tests.support.bench import OTHER, WORKER, problem_text

# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_dead_letter_tells_the_story_of_its_attempts(bench):
    await bench.register(OTHER)
    await bench.put("high", args=[{"order": 7}], max_retries=1)
    story = []
    for name, message in ((WORKER, "first"), (OTHER, "second")):
        task = await bench.claim_one(worker=name)
        started_s = bench.now_s
        bench.clock.advance(3)
        await bench.fail_attempt(task, message)
        story.append((task.attempt, name, started_s, bench.now_s, "error", message))
        bench.clock.advance(1)
    (letter,) = await bench.inspector.dead_letters()
    assert letter.args == [{"order": 7}]
    assert letter.reason == "max_retries_exceeded"
    assert letter.finished_at_s == story[-1][3]
    told = [
        (
            attempt.number,
            attempt.worker,
            attempt.started_at_s,
            attempt.ended_at_s,
            attempt.reason,
            attempt.problem.message,
        )
        for attempt in letter.history
    ]
    assert told == story


async def test_the_history_keeps_the_last_fifty_attempts(bench):
    task_id = await bench.put_one(max_retries=60)
    for number in range(1, 61):
        await bench.settle(await bench.claim_one(), Outcome.RETRY, body=problem_text(f"{number}"), after_s=0)
    history = (await bench.record(task_id)).history
    assert [attempt.number for attempt in history] == list(range(11, 61))


# ── events ───────────────────────────────────────────────────────────────────────────────────────────


async def test_the_event_stream_tells_the_life_of_a_task(bench):
    task_id = await bench.put_one("low", max_retries=1)
    bench.clock.advance(600)
    await bench.queue.promote()
    await bench.fail_attempt(await bench.claim_one())
    bench.clock.advance(1)
    await bench.fail_attempt(await bench.claim_one())
    await bench.queue.replay([task_id])
    await bench.settle(await bench.claim_one(), Outcome.HANDED_BACK)
    await bench.settle(await bench.claim_one(), Outcome.SNOOZED, after_s=0)
    await bench.complete(await bench.claim_one())
    assert bench.events() == [
        (task_id, "enqueued", "low", 1, "", ""),
        (task_id, "promoted", "medium", 0, "", "low"),
        (task_id, "claimed", "medium", 1, WORKER, ""),
        (task_id, "retrying", "low", 1, WORKER, "error"),
        (task_id, "forwarded", "low", 2, "", ""),
        (task_id, "claimed", "low", 2, WORKER, ""),
        (task_id, "dead_letter", "low", 2, WORKER, "max_retries_exceeded"),
        (task_id, "replayed", "low", 1, "", ""),
        (task_id, "claimed", "low", 1, WORKER, ""),
        (task_id, "handed_back", "low", 1, WORKER, ""),
        (task_id, "claimed", "low", 1, WORKER, ""),
        (task_id, "snoozed", "low", 1, WORKER, ""),
        (task_id, "forwarded", "low", 1, "", ""),
        (task_id, "claimed", "low", 1, WORKER, ""),
        (task_id, "completed", "low", 1, WORKER, ""),
    ]


async def test_one_call_makes_one_entry_and_tells_what_is_alike_once(bench):
    ids = await bench.put(count=3)
    ((_, fields),) = bench.raw.xrange(bench.key("events"))
    assert msgspec.msgpack.decode(fields[b"rows"]) == [["enqueued", "medium", 1, "", "", ids]]


async def test_the_stream_can_be_turned_off(bench_with):
    async with bench_with(events_max=0) as bench:
        await bench.put()
        await bench.complete(await bench.claim_one())
        assert bench.raw.exists(bench.key("events")) == 0
        assert (await bench.inspector.stats()).counters["completed"] == 1
