"""Why there are as many pods as there are, in words: a WorkerPool or a log in, lines out.

Pure: whoever calls it has fetched the object or read the file, and prints. What a status holds may have been written by
another version, so all of it is read with care, and what cannot be read is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from .scaling import Decision, Figures, decide, slots_per_running_task, slots_per_task
from .status import is_bad

_COUNTS: Final = {
    "desired": "desiredReplicas",
    "ready": "readyReplicas",
    "busy": "busy",
    "idle": "idle",
    "draining": "draining",
}
_GAP: Final = "  "

Row = Sequence[str]


# ── one decision ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Term:
    """One part of the sum of slots."""

    queue: str
    what: str
    """``waiting``, ``executing`` or ``arriving``."""
    level: str | None
    tasks: float
    share: float
    """How much of a slot each of them needs."""
    how: str
    """The same as a formula, with the numbers in it."""
    is_left_out: bool = False
    """It is there, but cannot be converted to slots yet."""

    @property
    def slots(self) -> float:
        return self.tasks * self.share


def terms(figures: Figures) -> list[Term]:
    """What the sum of slots is made of; their slots add up to `Decision.slots`."""
    found: list[Term] = []
    for queue in figures.queues:
        for level in queue.levels:
            share = slots_per_task(level, figures)
            how = f"{_number(level.waiting)} waiting x {_told_share(level.service_s, level.target_s, figures)}"
            found.append(Term(queue.queue, "waiting", level.level, level.waiting, share, how))
        share, told = slots_per_running_task(queue, figures), _told_share(queue.service_s, queue.target_s, figures)
        how = f"{_number(queue.executing)} executing x {told}"
        found.append(Term(queue.queue, "executing", None, queue.executing, share, how))
        flow = f"{_number(queue.arriving_per_s)} per s arriving"
        if queue.service_s is not None:
            how, expected = f"{flow} x {_number(queue.target_s)} s x {told}", queue.arriving_per_s * queue.target_s
            found.append(Term(queue.queue, "arriving", None, expected, share, how))
        elif queue.arriving_per_s:
            how = f"{flow}, left out until it is known how long they take"
            found.append(Term(queue.queue, "arriving", None, 0.0, share, how, is_left_out=True))
    return found


def _told_share(service_s: float | None, target_s: float, figures: Figures) -> str:
    if service_s is not None:
        return f"{_number(service_s)} s / ({_number(service_s)} s + {_number(target_s)} s)"
    if figures.backlog_per_worker <= figures.concurrency:
        return "1 (length unknown)"
    backlog, concurrency = _number(figures.backlog_per_worker), figures.concurrency
    return f"{concurrency} / {backlog} (length unknown: concurrency / backlogPerWorker)"


def decision_lines(decision: Decision) -> list[str]:
    """The formula, line by line, and what became of its result."""
    figures = decision.figures
    shown = [term for term in terms(figures) if term.tasks or term.is_left_out]
    rows = [(_place(term), term.how, f"= {_number(term.slots)} slots") for term in shown]
    if not rows:
        rows.append(("all queues", "nothing waits, executes or steadily arrives", "= 0 slots"))
    rows.append(("together", "", f"= {_number(decision.slots)} slots"))
    by_worker = f"{_number(decision.slots)} slots / {figures.concurrency} per worker, rounded up"
    rows.append(("need", by_worker, f"= {_workers(decision.need)}"))
    return [*_table(rows), *_table([(name, text) for name, text in _outcome(decision) if text])]


def _place(term: Term) -> str:
    return term.queue if term.level is None else f"{term.queue}, level {term.level}"


def _outcome(decision: Decision) -> list[tuple[str, str]]:
    figures = decision.figures
    bounds = f"at least {figures.min_replicas} (minReplicas), at most {figures.max_replicas} (maxReplicas)"
    chosen = f"{_workers(decision.replicas)} ({decision.reason}): {decision.message}"
    if figures.fixed_replicas is not None:
        return [("fixed", f"spec.replicas is {figures.fixed_replicas}"), ("bounds", bounds), ("result", chosen)]
    long_idle = sum(idle_s >= figures.idle_seconds for idle_s in figures.idle_s)
    idle = f"{_number(figures.idle_seconds)} s"
    so_far = f"{_workers(figures.replicas)}, {figures.busy} busy, {long_idle} idle for {idle} or longer"
    spare = f"{_workers(decision.spare)} not needed lately" if decision.spare else ""
    limits = []
    if figures.up_limit is not None:
        pods, seconds = figures.up_limit.pods, _number(figures.up_limit.seconds)
        limits.append(f"{pods} more within {seconds} s (scaleUpLimit), {figures.added} of them added already")
    if figures.down_limit is not None:
        pods, seconds = figures.down_limit.pods, _number(figures.down_limit.seconds)
        limits.append(f"{pods} fewer within {seconds} s (scaleDownLimit), {figures.removed} of them gone already")
    return [
        ("so far", so_far),
        ("to spare", spare),
        ("bounds", bounds),
        ("limits", "; ".join(limits)),
        ("result", chosen),
    ]


# ── a pool ───────────────────────────────────────────────────────────────────────────────────────────


def pool_lines(body: Mapping[str, Any]) -> list[str]:
    """All there is to say about a WorkerPool's number of pods, for people."""
    metadata, spec, status = _inner(body, "metadata"), _inner(body, "spec"), _inner(body, "status")
    counts = _counts(status)
    desired, ready = counts["desired"], counts["ready"]
    name = f"WorkerPool {metadata.get('namespace')}/{metadata.get('name')}"
    if desired is None:
        title = f"{name}: nothing is known of its pods yet."
    else:
        title = f"{name}: there shall be {desired} pods, and {ready or 0} of them are ready."
    numbers = [(each, "?" if count is None else str(count)) for each, count in counts.items()]
    numbers += [("min", str(spec.get("minReplicas", 0))), ("max", str(spec.get("maxReplicas", 10)))]
    lines = [title, "", *_table([[each for each, _ in numbers], [count for _, count in numbers]])]
    if _is_outdated(metadata, status):
        lines += ["", "The spec has been changed since; this is about what it said before."]
    lines += ["", *_last_decision(status)]
    if recent := _recent(status):
        heads = ("TIME", "FROM", "TO", "REASON", "MESSAGE")
        rows = [[_text(each, key) for key in ("time", "from", "replicas", "reason", "message")] for each in recent]
        lines += ["", "The last changes of the number, newest first:", *_table([heads, *rows])]
    if problems := _problems(status):
        told = [
            f"{_GAP}{_text(each, 'type')} is {_text(each, 'status')} since {_text(each, 'lastTransitionTime')} "
            f"({_text(each, 'reason')}): {_text(each, 'message')}"
            for each in problems
        ]
        lines += ["", "Not as it should be:", *told]
    return lines


def pool_facts(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same for programs."""
    metadata, spec, status = _inner(body, "metadata"), _inner(body, "spec"), _inner(body, "status")
    last = _inner(status, "lastDecision")
    decision = _decided(last)
    return {
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "isOutdated": _is_outdated(metadata, status),
        "counts": _counts(status),
        "minReplicas": spec.get("minReplicas", 0),
        "maxReplicas": spec.get("maxReplicas", 10),
        "lastDecision": dict(last) or None,
        "formula": None if isinstance(decision, str) else formula_facts(decision),
        "recentDecisions": _recent(status),
        "problems": _problems(status),
    }


def formula_facts(decision: Decision) -> dict[str, Any]:
    """The formula for programs."""
    return {
        "terms": [
            {"queue": term.queue, "what": term.what, "level": term.level, "tasks": term.tasks, "share": term.share,
             "slots": term.slots}
            for term in terms(decision.figures)
        ],
        "slots": decision.slots,
        "concurrency": decision.figures.concurrency,
        "need": decision.need,
        "replicas": decision.replicas,
        "reason": decision.reason.value,
        "message": decision.message,
    }  # fmt: skip


def _last_decision(status: Mapping[str, Any]) -> list[str]:
    last = _inner(status, "lastDecision")
    if not last:
        return [
            "No decision has been made yet: the operator decides once it runs, the spec can be read and every queue of "
            "the pool answers."
        ]
    change = f"from {_text(last, 'from')} to {_text(last, 'replicas')} workers"
    if last.get("from") == last.get("replicas"):
        change = f"{_text(last, 'replicas')} workers, as before"
    lines = [f"The last decision, at {_text(last, 'time')}: {change} ({_text(last, 'reason')})."]
    lines.append(f"{_GAP}{_text(last, 'message')}.")
    decision = _decided(last)
    if isinstance(decision, str):
        return [*lines, f"The figures it was made from cannot be read by this version of headrace: {decision}."]
    lines += ["", "How that comes about:", *decision_lines(decision)]
    if (decision.replicas, decision.reason) != (last.get("replicas"), last.get("reason")):
        told = f"{decision.replicas} ({decision.reason})"
        lines.append(
            f"The operator decided otherwise: this version of headrace would have {told}. Use the same version."
        )
    return lines


def _decided(last: Mapping[str, Any]) -> Decision | str:
    """The decision, made again from what the status says; or why that cannot be done."""
    inputs = last.get("inputs")
    if inputs is None:
        return "there are none"
    try:
        return _decide(inputs)
    except _Unreadable as error:
        return str(error)


def _is_outdated(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    return "observedGeneration" in status and status["observedGeneration"] != metadata.get("generation")


def _counts(status: Mapping[str, Any]) -> dict[str, int | None]:
    found = {name: status.get(key) for name, key in _COUNTS.items()}
    return {name: count if isinstance(count, int) else None for name, count in found.items()}


def _recent(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _objects(status.get("recentDecisions"))


def _problems(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions that are not as they should be, and a pause, which nobody should have to search for."""
    return [
        each
        for each in _objects(status.get("conditions"))
        if is_bad(each)
        or each.get("status") == "Unknown"
        or (each.get("type") == "Paused" and each.get("status") == "True")
    ]


# ── a log ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Replayed:
    """A line of the operator's log that tells of a decision, and what its figures lead to."""

    line: int
    time: str
    namespace: str
    name: str
    said: str
    """What was decided, by the log."""
    decision: Decision | None
    problem: str | None
    """How it differs from what the figures lead to, or why it cannot be read."""


def replay(log: Iterable[str], *, namespace: str | None = None, name: str | None = None) -> list[Replayed]:
    """Make every decision of a log again; of one pool only, if it is named."""
    found: list[Replayed] = []
    for number, line in enumerate(log, 1):
        entry = _entry(line)
        if entry is None:
            continue
        if namespace not in (None, entry.get("namespace")) or name not in (None, entry.get("name")):
            continue
        found.append(_replayed(number, entry))
    return found


def _entry(line: str) -> Mapping[str, Any] | None:
    """The line's decision; None if it is about something else. kubectl may have put words of its own before it."""
    start = line.find("{")
    if start < 0 or '"decision"' not in line:
        return None
    try:
        entry = json.loads(line[start:])
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and entry.get("event") == "decision" else None


def _replayed(number: int, entry: Mapping[str, Any]) -> Replayed:
    said = f"{_text(entry, 'replicas')} ({_text(entry, 'reason')}, {_text(entry, 'need')} needed)"
    decision, problem = None, None
    try:
        decision = _decide(entry.get("figures"))
    except _Unreadable as error:
        problem = f"its figures cannot be read: {error}"
    else:
        if not _is_same(entry, decision):
            found = f"{decision.replicas} ({decision.reason}, {decision.need} needed)"
            problem = f"the log says {said}, and its figures lead to {found}"
    time, namespace, name = (_text(entry, key) for key in ("timestamp", "namespace", "name"))
    return Replayed(number, time, namespace, name, said, decision, problem)


def _is_same(entry: Mapping[str, Any], decision: Decision) -> bool:
    told = (entry.get("replicas"), entry.get("need"), entry.get("reason"))
    return told == (decision.replicas, decision.need, decision.reason.value)


def replay_lines(found: Sequence[Replayed]) -> list[str]:
    """What a log tells, for people."""
    rows = [("LINE", "TIME", "POOL", "FROM", "DECIDED", "WHY")]
    for each in found:
        before = "?" if each.decision is None else str(each.decision.figures.replicas)
        why = "" if each.decision is None else each.decision.message
        rows.append((str(each.line), each.time, f"{each.namespace}/{each.name}", before, each.said, why))
    wrong = [each for each in found if each.problem is not None]
    lines = [*_table(rows), ""]
    decisions = "1 decision" if len(found) == 1 else f"{len(found)} decisions"
    if not wrong:
        return [*lines, f"{decisions}: the figures lead to the same result again."]
    told = [f"{_GAP}line {each.line}: {each.problem}" for each in wrong]
    return [*lines, f"{decisions}, of which {len(wrong)} cannot be made again with the same result:", *told]


def replay_facts(found: Sequence[Replayed]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "line": each.line,
            "time": each.time,
            "namespace": each.namespace,
            "name": each.name,
            "problem": each.problem,
            "formula": None if each.decision is None else formula_facts(each.decision),
        }
        for each in found
    ]


# ── reading and writing ──────────────────────────────────────────────────────────────────────────────


class _Unreadable(Exception):
    """Raised for figures from which nothing can be decided."""


def _decide(inputs: object) -> Decision:
    try:
        figures = msgspec.convert(inputs, Figures)
        return decide(figures)
    except (msgspec.ValidationError, ArithmeticError, ValueError) as error:
        raise _Unreadable(str(error)) from error


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, (list, tuple)) else []


def _text(value: Mapping[str, Any], key: str) -> str:
    """One line, whatever it is: it may come from somewhere else, and goes to a terminal."""
    text = str(value.get(key, "?"))
    return "".join(character if character.isprintable() else " " for character in text).rstrip(".")


def _number(value: float) -> str:
    """As short as it can be said, with at most three decimals."""
    if not math.isfinite(value) or (value and abs(value) < 0.001):
        return f"{value:.2g}"
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _table(rows: Sequence[Row]) -> list[str]:
    """Columns side by side; the last one is as long as it is."""
    columns = max(len(row) for row in rows)
    widths = [max(len(row[at]) for row in rows if len(row) > at) for at in range(columns)]
    return [
        (_GAP + _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip() for row in rows
    ]
