"""The state machine can go red: with one line of a script broken, it finds out.

A test that cannot fail proves nothing. Each case takes the scripts as they are, breaks one thing in memory, and
runs the very same machine; it must fail within a bounded number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from hypothesis import Phase

from headrace.queue import scripts
from tests.queue.test_state_machine import machine_on, run_machine
from tests.support.redis_server import RedisServer

MAX_HISTORIES = 200  # most cases need fewer than ten; the rest is room for changes to the machine
CONTROL_HISTORIES = 30
STEPS = 100
SEED = 1

MUTATIONS = {
    # what is broken: (file, the text, what takes its place)
    "settle does not look at the fencing token": (
        "settle.lua",
        "elseif task.token ~= token then",
        "elseif false then",
    ),
    "reclaim leaves the token as it was": (
        "lib/repair.lua",
        "redis.call('HSET', task_key(id), 'token', task.token + 1)",
        "",
    ),
    "claim leaves tasks in the line": (
        "claim.lua",
        "if taken > 0 then redis.call('ZREMRANGEBYRANK', window.key, '0', text(taken - 1)) end",
        "",
    ),
    "settle does not free the worker's slot": (
        "settle.lua",
        "    release_slot(task)\n",
        "",
    ),
    "settle leaves the lease behind": (
        "settle.lua",
        "remove_all(leases_key, settled_ids)",
        "",
    ),
    "a snoozed task keeps its promotion": (
        "settle.lua",
        "redis.call('HDEL', key, 'worker', 'started_us', 'promoted')   -- it will wait anew, at its own level",
        "redis.call('HDEL', key, 'worker', 'started_us')",
    ),
    "a retry goes to the end of the line": (
        "lib/repair.lua",
        "local place_us = task.state == 'scheduled' and tonumber(due[i + 1]) or task.place_us",
        "local place_us = tonumber(due[i + 1])",
    ),
    "a lease is renewed past the attempt's timeout": (
        "heartbeat.lua",
        "math.min(now_us + config.lease_us, tonumber(task[3]) + timeout_us)",
        "now_us + config.lease_us",
    ),
    "a cancelled task that crashed is retried": (
        "lib/repair.lua",
        "if task.cancel then",
        "if false then",
    ),
    "keys are shared between tenants": (
        "lib/base.lua",
        "local function task_key(id) return prefix .. 'task:' .. id end",
        "local function task_key(id) return 'hr:{shared}:task:' .. id end",
    ),
    "the leases of a stopped worker no longer count": (
        "heartbeat.lua",
        "if tonumber(redis.call('HGET', key, 'load') or 0) > 0 then",
        "if false then",
    ),
    "a capability set can use up a whole batch of promotions": (
        "promote.lua",
        "if a.place_us ~= b.place_us then return a.place_us < b.place_us end",
        "if a.capset ~= b.capset then return a.capset < b.capset end",
    ),
    "an idempotency key does not outlive its task": (
        "enqueue.lua",
        "  if existing then\n",
        "  if existing and redis.call('EXISTS', task_key(existing)) == 1 then\n",
    ),
    "a worker takes two suspects at a time": (
        "claim.lua",
        "if id and not (window.is_suspect and has_suspect)",
        "if id",
    ),
    "a promoted task counts for the level it was promoted to": (
        "lib/attempts.lua",
        "count_end(state, task.level)",
        "count_end(state, task.promoted or task.level)",
    ),
    "a retry that is due before all others wakes nobody": (
        "lib/ready.lua",
        "if sooner_due then wake('', 1) end",
        "",
    ),
    "tasks that become ready wake nobody": (
        "lib/ready.lua",
        "for line, tasks in pairs(made_ready) do wake(line, tasks) end",
        "",
    ),
}


@pytest.fixture
def fresh_scripts() -> Iterator[None]:
    """Scripts are put together once per process; a broken one must not stay."""
    scripts.script.cache_clear()
    yield
    scripts.script.cache_clear()


@pytest.mark.usefixtures("fresh_scripts")
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_broken_script_is_caught(mutation: str, frozen_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text, replacement = MUTATIONS[mutation]
    read = scripts._read
    assert read(path).count(text) == 1, f"{path} no longer has the line that this test breaks"
    broken = read(path).replace(text, replacement)
    monkeypatch.setattr(scripts, "_read", lambda asked: broken if asked == path else read(asked))
    with machine_on(frozen_server) as machine:
        # A wrong answer or state is an AssertionError; some breakage makes a script or the reading of Redis fail.
        with pytest.raises((AssertionError, redis.ResponseError, KeyError)) as caught:
            run_machine(machine, examples=MAX_HISTORIES, steps=STEPS, seed=SEED, phases=(Phase.generate,))
        print(f"{mutation}: caught after {machine.steps} steps by {str(caught.value).splitlines()[:2]}")


@pytest.mark.usefixtures("fresh_scripts")
def test_unbroken_scripts_pass_the_same_histories(frozen_server: RedisServer) -> None:
    """The control: what the cases above catch is the broken line, and not something about the machine."""
    with machine_on(frozen_server) as machine:
        run_machine(machine, examples=CONTROL_HISTORIES, steps=STEPS, seed=SEED, phases=(Phase.generate,))
        assert machine.steps > CONTROL_HISTORIES * STEPS // 2
