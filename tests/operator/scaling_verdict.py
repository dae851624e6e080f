"""What a scaling drill has to answer for: each task's story, what the drill did to pods itself, and the verdict.

Pure: the evidence goes in, and what does not add up comes out. These are the laws:

* every task has completed, and exactly once;
* an attempt is spent only where the drill has killed or deleted the worker's pod meanwhile;
* a task that has begun is handed back only where the drill has deleted the worker's pod;
* a pod that nobody but Headrace tells to go holds no task at that moment.

A claim can come just as its worker is drained. It goes back at once, before it has begun, and spends nothing: that is
counted, and is no interruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

AT_ONCE_S = 1.0
"""A claim that goes back within this time has not begun. Whoever is made to stop has two seconds of grace."""
IN_FLIGHT_S = 5.0
"""What a process has sent before it was killed may reach Redis so much later, on a machine that is busy."""
_ENDS = ("completed", "failed", "cancelled", "dead_letter")
_HELD_NO_MORE = (*_ENDS, "retrying", "handed_back", "snoozed")


@dataclass(frozen=True)
class Moment:
    """Something that happened to a task, as the queue's stream of events tells it."""

    at_s: float
    what: str
    worker: str = ""
    attempt: int = 1
    detail: str = ""


@dataclass(frozen=True)
class Story:
    """All that is known of one task."""

    task_id: str
    seconds: float | None
    """How long it takes; None if nobody remembers having enqueued it: the answer of that call was lost."""
    state: str | None
    """As its record has it; None if there is no record."""
    retry_count: int = 0
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True)
class Blow:
    """What the drill itself did to a pod, and between which moments that took effect."""

    pod: str
    how: Literal["killed", "deleted"]
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Departure:
    """A pod was seen to be told to go."""

    pod: str
    at_s: float


@dataclass(frozen=True)
class Evidence:
    """All that was recorded."""

    stories: Sequence[Story]
    blows: Sequence[Blow] = ()
    departures: Sequence[Departure] = ()


Charge = Literal["lost", "settled twice", "interrupted", "attempt spent", "told to go while busy"]


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    charge: Charge
    task_id: str
    pod: str
    at_s: float | None
    sentence: str


@dataclass
class Verdict:
    """What has come of all tasks."""

    tasks: int = 0
    completed: int = 0
    retried: int = 0
    """Tasks that lost an attempt because the drill has killed or deleted their worker."""
    given_back_by_deleted: int = 0
    """Tasks that a worker handed back whose pod the drill had deleted."""
    returned_at_once: int = 0
    """Claims that came just as their worker was drained."""
    recoveries_s: list[float] = field(default_factory=list)
    """From a kill to the next claim of a task that it met."""
    findings: list[Finding] = field(default_factory=list)

    def count(self, *charges: Charge) -> int:
        return sum(finding.charge in charges for finding in self.findings)

    @property
    def interrupted(self) -> int:
        """Busy workers that Headrace has interrupted, counted by their tasks."""
        return len({finding.task_id for finding in self.findings if finding.charge in _INTERRUPTIONS})


_INTERRUPTIONS: tuple[Charge, ...] = ("interrupted", "told to go while busy")


@dataclass(frozen=True)
class Hold:
    """A worker holds a task, from a claim to whatever ended it."""

    claim: Moment
    end: Moment | None

    @property
    def pod(self) -> str:
        return pod_of(self.claim.worker)


def pod_of(worker: str) -> str:
    """A worker's name is its host's, which is the pod's, with its process and something random behind."""
    return worker.rsplit("-", 2)[0]


class Blows:
    """What the drill did, to tell what it explains."""

    def __init__(self, evidence: Evidence) -> None:
        self._by_pod: dict[str, list[Blow]] = {}
        for blow in evidence.blows:
            self._by_pod.setdefault(blow.pod, []).append(blow)
        self._first_heard_s: dict[str, float] = {}
        """Of each worker."""
        for moment in (moment for story in evidence.stories for moment in story.moments if moment.worker):
            first_s = self._first_heard_s.get(moment.worker, moment.at_s)
            self._first_heard_s[moment.worker] = min(first_s, moment.at_s)

    def explain(self, hold: Hold, at_s: float) -> Blow | None:
        """What the drill did that explains why this worker lost its task at that moment.

        A kill meets the process that is there, also in what it had just asked for, and the next one in the same pod has
        no excuse. A pod that is deleted goes, and may still claim until its worker hears of it.
        """
        for blow in self._by_pod.get(hold.pod, ()):
            if at_s >= blow.from_s and (blow.how == "deleted" or self._meets(blow, hold)):
                return blow
        return None

    def _meets(self, blow: Blow, hold: Hold) -> bool:
        was_there = self._first_heard_s[hold.claim.worker] <= blow.until_s
        return was_there and hold.claim.at_s <= blow.until_s + IN_FLIGHT_S


def judge(evidence: Evidence) -> Verdict:
    """Hold all of it to the laws."""
    verdict = Verdict(tasks=len(evidence.stories))
    blows = Blows(evidence)
    departures: dict[str, Departure] = {}
    for departure in sorted(evidence.departures, key=lambda each: -each.at_s):
        departures[departure.pod] = departure  # the first time it was seen counts
    for story in evidence.stories:
        _judge_end(story, verdict)
        _judge_attempts(story, blows, verdict)
        for hold in holds(story):
            _judge_return(story, hold, blows, verdict)
            _judge_departure(story, hold, departures.get(hold.pod), blows, verdict)
    return verdict


def holds(story: Story) -> Iterator[Hold]:
    """Who held the task, one after another."""
    claim: Moment | None = None
    for moment in story.moments:
        if moment.what == "claimed":
            if claim is not None:
                yield Hold(claim, None)
            claim = moment
        elif claim is not None and moment.what in _HELD_NO_MORE:
            yield Hold(claim, moment)
            claim = None
    if claim is not None:
        yield Hold(claim, None)


# ── the laws ─────────────────────────────────────────────────────────────────────────────────────────


def _judge_end(story: Story, verdict: Verdict) -> None:
    ends = [moment for moment in story.moments if moment.what in _ENDS]
    last = story.moments[-1] if story.moments else None
    at_s = last.at_s if last else None
    if story.state == "completed" and [moment.what for moment in ends] == ["completed"]:
        verdict.completed += 1
    elif len(ends) > 1:
        how = ", ".join(moment.what for moment in ends)
        _add(verdict, "settled twice", story, pod_of(ends[-1].worker), ends[-1].at_s, f"was settled as: {how}")
    elif story.state is None:
        _add(verdict, "lost", story, "", at_s, "has no record any more")
    else:
        settled = "was never settled" if not ends else f"was settled as {ends[0].what}"
        _add(verdict, "lost", story, "", at_s, f"is {story.state}, not completed, and {settled}")


def _judge_attempts(story: Story, blows: Blows, verdict: Verdict) -> None:
    spent = [hold for hold in holds(story) if hold.end is not None and hold.end.what == "retrying"]
    for hold in spent:
        assert hold.end is not None
        blow = blows.explain(hold, hold.end.at_s)
        if blow is None:
            sentence = f"lost attempt {hold.end.attempt} ({hold.end.detail or 'no reason told'}) for which nobody died"
            _add(verdict, "attempt spent", story, hold.pod, hold.end.at_s, sentence)
            continue
        again = next((each for each in story.moments if each.what == "claimed" and each.at_s > hold.end.at_s), None)
        if again is not None:
            verdict.recoveries_s.append(again.at_s - blow.from_s)
    verdict.retried += bool(spent)
    if story.retry_count > len(spent):
        sentence = f"has {story.retry_count} retries, and only {len(spent)} of them were told"
        _add(verdict, "attempt spent", story, "", None, sentence)


def _judge_return(story: Story, hold: Hold, blows: Blows, verdict: Verdict) -> None:
    if hold.end is None or hold.end.what != "handed_back":
        return
    held_s = hold.end.at_s - hold.claim.at_s
    if blows.explain(hold, hold.end.at_s) is not None:
        verdict.given_back_by_deleted += 1
    elif held_s <= AT_ONCE_S:
        verdict.returned_at_once += 1
    else:
        sentence = f"was handed back after {held_s:.1f} s by a worker that the drill has left alone"
        _add(verdict, "interrupted", story, hold.pod, hold.end.at_s, sentence)


def _judge_departure(story: Story, hold: Hold, departure: Departure | None, blows: Blows, verdict: Verdict) -> None:
    """Even what a worker finishes within its grace was an interruption: nobody may rely on that."""
    if departure is None or hold.claim.at_s >= departure.at_s:
        return
    if hold.end is not None and hold.end.at_s <= departure.at_s:
        return
    if blows.explain(hold, departure.at_s) is None:
        sentence = f"was held by a pod that was told to go {departure.at_s - hold.claim.at_s:.1f} s after its claim"
        _add(verdict, "told to go while busy", story, hold.pod, departure.at_s, sentence)


def _add(verdict: Verdict, charge: Charge, story: Story, pod: str, at_s: float | None, sentence: str) -> None:
    verdict.findings.append(Finding(charge, story.task_id, pod, at_s, f"{story.task_id} {sentence}"))


# ── telling ──────────────────────────────────────────────────────────────────────────────────────────


def told(story: Story, since_s: float) -> Iterable[str]:
    """The story of a task in lines, with seconds since the drill's beginning."""
    duration = "of unknown duration" if story.seconds is None else f"of {story.seconds:.2f} s"
    yield f"{story.task_id}, {duration}: {story.state or 'no record'}, {story.retry_count} retries"
    for moment in story.moments:
        by = f" by {moment.worker}" if moment.worker else ""
        why = f" ({moment.detail})" if moment.detail else ""
        yield f"  {moment.at_s - since_s:8.2f} s  {moment.what}, attempt {moment.attempt}{by}{why}"
