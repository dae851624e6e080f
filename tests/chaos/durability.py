"""What each way of running Redis keeps when it crashes: measured, and written into docs/reliability.md.

    python -m tests.chaos.durability [--crashes 10] [--publish]

Producers enqueue as fast as they are answered, the server that takes their writes is crashed again and again, and
in the end every task that was confirmed is looked for. No worker runs: a task that is not there was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from headrace import Headrace, HeadraceError, QueueConfig, TaskNotFound
from headrace.queue.cancelling import cancel_and_wait
from tests.support.cluster import RedisClusterServers
from tests.support.power import PowerSwitch
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SentinelSet
from tests.support.topology import Installation

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "reliability.md"
RESULTS = REPOSITORY / "build" / "durability.json"
BEGIN, END = "<!-- durability: begin -->", "<!-- durability: end -->"

TENANT, QUEUE = "durability", "jobs"
KEY = f"hr:{{{TENANT}/{QUEUE}}}:config"
PRODUCERS = 4
_ASKED_AT_ONCE = 50

Promise = Literal["all", "a little", "none"]
Crash = Callable[[], object]


@dataclass(frozen=True)
class Setup:
    """One row: how Redis is run, what is done to it, and what we promise of it."""

    name: str
    fault: str
    promise: Promise
    """What survives: all that was confirmed, all but a little (``within_s`` of writes), or nothing."""
    open: Callable[[], contextlib.AbstractContextManager[tuple[Installation, Crash]]]
    options: str = ""
    within_s: float = 0.0


@dataclass(frozen=True)
class Finding:
    """What was measured for a row."""

    name: str
    fault: str
    promise: str
    crashes: int
    confirmed: int
    lost: int
    farthest_loss_s: float | None
    """The longest time between the confirmation of a lost task and the crash (before or, in a failover, after it)."""
    failures: int
    """Calls that raised, and so confirmed nothing."""


# ── the setups ───────────────────────────────────────────────────────────────────────────────────────────


def _aof(policy: str) -> list[tuple[str, str]]:
    return [("appendonly", "yes"), ("appendfsync", policy)]


@contextlib.contextmanager
def _one_server(config: Sequence[tuple[str, str]] = ()) -> Iterator[tuple[Installation, Crash]]:
    with RedisServer(config) as server:

        def crash() -> None:
            server.kill()
            server.start()

        yield server, crash


@contextlib.contextmanager
def _power_cuts(policy: str) -> Iterator[tuple[Installation, Crash]]:
    with tempfile.TemporaryDirectory() as directory:
        switch = PowerSwitch(Path(directory))
        with switch.server(_aof(policy)) as server:

            def crash() -> None:
                switch.cut(server)
                server.start()

            yield server, crash


@contextlib.contextmanager
def _sentinel(kind: Literal["crash", "switch-over"]) -> Iterator[tuple[Installation, Crash]]:
    with SentinelSet(down_after_ms=500) as servers:

        def crash() -> None:
            victim = servers.kill_primary()
            servers.wait_for_other_primary(victim)
            victim.start()
            servers.wait_until_settled()

        yield servers, crash if kind == "crash" else servers.failover


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[Installation, Crash]]:
    with RedisClusterServers(node_timeout_ms=1000) as servers:

        def crash() -> None:
            victim = servers.kill_primary(KEY)
            servers.wait_for_other_primary(KEY, victim)
            victim.start()
            servers.wait_until_settled()

        yield servers, crash


KILL, POWER, SWITCH = "kill -9", "power cut (simulated)", "switch-over"
SETUPS = (
    Setup("one server, nothing persisted", KILL, "none", _one_server),
    Setup("one server, `appendfsync everysec`", KILL, "all", lambda: _one_server(_aof("everysec"))),
    Setup("one server, `appendfsync always`", KILL, "all", lambda: _one_server(_aof("always"))),
    # Redis flushes once a second, and lets a flush that the disk is slow with go on for another second.
    Setup("one server, `appendfsync everysec`", POWER, "a little", lambda: _power_cuts("everysec"), within_s=3.0),
    Setup("one server, `appendfsync always`", POWER, "all", lambda: _power_cuts("always")),
    Setup("Sentinel", KILL, "a little", lambda: _sentinel("crash"), within_s=1.0),
    # The sentinels look once a second whether the promotion has come about, and announce it then.
    Setup("Sentinel", SWITCH, "a little", lambda: _sentinel("switch-over"), within_s=3.0),
    Setup("Sentinel, `confirm_replicas=2` (all)", KILL, "all", lambda: _sentinel("crash"), "?confirm_replicas=2"),
    Setup(
        "Sentinel, `confirm_replicas=2` (all)", SWITCH, "all", lambda: _sentinel("switch-over"), "?confirm_replicas=2"
    ),
    Setup("Cluster", KILL, "a little", _cluster, within_s=1.0),
    Setup("Cluster, `confirm_replicas=1` (all)", KILL, "all", _cluster, "?confirm_replicas=1"),
)


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────


class Ledger:
    """What was confirmed, and when."""

    def __init__(self) -> None:
        self.confirmed_at_s: dict[str, float] = {}
        self.failures = 0

    async def produce(self, app: Headrace) -> None:
        task = app.remote("t", queue=QUEUE)
        while True:
            try:
                handle = await task.enqueue()
            except HeadraceError:
                self.failures += 1
                await asyncio.sleep(0.05)
            else:
                self.confirmed_at_s[handle.id] = time.monotonic()
                await asyncio.sleep(0.002)


async def measure(setup: Setup, crashes: int) -> Finding:
    """Crash it so often; raises ``AssertionError`` when a promise is broken."""
    ledger = Ledger()
    crashed_at_s: list[float] = []
    with setup.open() as (servers, crash):
        url = servers.url + setup.options
        for _ in range(crashes):
            # An app of its own for each crash: a server that lost all has lost the queue's definition as well.
            async with Headrace(url, tenant=TENANT, queues=[QueueConfig(QUEUE)]) as app:
                producing = [asyncio.create_task(ledger.produce(app)) for _ in range(PRODUCERS)]
                before = len(ledger.confirmed_at_s)
                while len(ledger.confirmed_at_s) < before + 20:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(random.uniform(0.5, 2.0))  # crashes at no particular moment
                crashed_at_s.append(time.monotonic())
                await asyncio.to_thread(crash)
                await cancel_and_wait(*producing)
        async with Headrace(url, tenant=TENANT, queues=[QueueConfig(QUEUE)]) as app:
            lost = await _missing(app, list(ledger.confirmed_at_s))
    ages_s = [_age_s(ledger.confirmed_at_s[task_id], crashed_at_s) for task_id in lost]
    finding = Finding(
        name=setup.name,
        fault=setup.fault,
        promise=_promise(setup),
        crashes=crashes,
        confirmed=len(ledger.confirmed_at_s),
        lost=len(lost),
        farthest_loss_s=round(max(ages_s), 3) if ages_s else None,
        failures=ledger.failures,
    )
    if setup.promise == "all":
        assert finding.lost == 0, finding
    if setup.promise == "a little":
        assert (finding.farthest_loss_s or 0.0) <= setup.within_s, finding
    if setup.promise == "none":
        # Not a promise, but a proof that losses are counted. What was confirmed after the restart is still there.
        doomed = {task_id for task_id, at_s in ledger.confirmed_at_s.items() if at_s < crashed_at_s[-1]}
        assert doomed <= set(lost), finding
    return finding


async def _missing(app: Headrace, task_ids: list[str]) -> list[str]:
    async def is_missing(task_id: str) -> bool:
        try:
            await app.handle(QUEUE, task_id).state()
        except TaskNotFound:
            return True
        return False

    missing: list[str] = []
    for start in range(0, len(task_ids), _ASKED_AT_ONCE):
        group = task_ids[start : start + _ASKED_AT_ONCE]
        gone = await asyncio.gather(*map(is_missing, group))
        missing += [task_id for task_id, is_gone in zip(group, gone, strict=True) if is_gone]
    return missing


def _age_s(confirmed_at_s: float, crashed_at_s: list[float]) -> float:
    """How far from the nearest crash it was confirmed, before it or (in a failover) after it."""
    return min(abs(at_s - confirmed_at_s) for at_s in crashed_at_s)


def _promise(setup: Setup) -> str:
    if setup.promise == "all":
        return "every confirmed task"
    if setup.promise == "none":
        return "nothing"
    return f"all but {setup.within_s:g} s of writes"


NOTES = """\
*Confirmed* is a task whose `enqueue` returned. *Farthest loss* is the longest time between the confirmation of a lost
task and the fault. Measured by `make durability`; the figures are counts of one run, the last column is the promise,
and the run fails when it is broken.

- **kill -9 is not a power cut.** What a killed process has written is in the kernel's page cache and reaches the disk
  later, so `everysec` and `always` look the same there. They differ when the machine goes down. That is simulated:
  every flush of the append-only file is noted, and after kill -9 the file is cut back to what was flushed. It takes
  for granted that the disk keeps what it says it has flushed.
- **Sentinel and Cluster replicate without waiting.** A primary that dies takes along what it had answered but not yet
  sent, a matter of milliseconds. One that Sentinel replaces while it is alive learns of it eight to ten seconds late
  and takes writes until then; Headrace leaves it when the sentinels announce the promotion, within about a second.
- **`?confirm_replicas=N`** makes enqueue, settle, cancel and replay wait for N replicas, and closes this gap if N is
  the number of *all* replicas that may be promoted. With fewer, a replica that confirmed is not always the one that is
  promoted: in the failover drill one of two lost as many tasks as none. The price: while a replica is away, those
  calls raise `Unconfirmed`, and after a switch-over of Sentinel they wait until the old primary has become a replica.
- **`min-replicas-to-write`** with the number of all replicas stops a deposed primary as soon as the promoted replica
  has left it, at the same price. It does not cover what a dying primary has answered but not sent.
- **A primary without persistence must not be restarted before the failover.** It comes back empty, is still the
  primary, and its replicas copy its emptiness. Use `appendonly yes` on every server, or a restart delay well above
  `down-after-milliseconds` (`cluster-node-timeout`).
- **Work may be done again, and is settled once.** A claim waits for no replica. When a failover forgets a claim or a
  settle, the task is run again; a settle with the old token is refused.

Recommended for tasks that must not be lost: `appendonly yes`, `appendfsync everysec` (`always` on one server),
two replicas, `?confirm_replicas=2` (Sentinel) or one replica per primary and `?confirm_replicas=1` (Cluster)."""


# ── publishing ───────────────────────────────────────────────────────────────────────────────────────────


def table(findings: Sequence[Finding]) -> str:
    """The findings for docs/reliability.md, and how to read them."""
    lines = [
        "| Redis is run as | what happens | crashes | confirmed | lost | farthest loss | what survives, as promised |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for found in findings:
        farthest = "" if found.farthest_loss_s is None else f"{found.farthest_loss_s:.2f} s"
        lines.append(
            f"| {found.name} | {found.fault} | {found.crashes} | {found.confirmed:,} | {found.lost:,} | {farthest} "
            f"| {found.promise} |"
        )
    return "\n".join([*lines, "", NOTES])


def publish(text: str, page: Path = PAGE) -> None:
    """Put ``text`` between the markers of ``page``."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no place for the table: add the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Crash Redis in every setup and count what was lost.")
    parser.add_argument("--crashes", type=int, default=10, help="how often each setup is crashed")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/reliability.md")
    arguments = parser.parse_args()
    findings = []
    for setup in SETUPS:
        findings.append(asyncio.run(measure(setup, arguments.crashes)))
        print(findings[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(found) for found in findings], indent=2) + "\n", encoding="utf-8")
    if arguments.publish:
        publish(table(findings))


if __name__ == "__main__":
    main()
