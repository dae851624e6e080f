"""What is seen of the demonstration: a picture that moves in a terminal, plain lines elsewhere, and the summary.

What belongs here: how figures look. Where they come from is `burst`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_SECONDS = 60
_LINE_EVERY_S = 2.0


@dataclass(frozen=True)
class Moment:
    """The queue and its pods at one moment."""

    elapsed_s: float
    """Since the burst was enqueued."""
    waiting: dict[str, int]
    """By level, the highest first."""
    executing: int
    completed: int
    pods: int
    """All that are there, also those that start or go."""
    ready: int
    decision: str = ""
    """What the operator has decided last, in its own words."""


@dataclass(frozen=True)
class Outcome:
    """What has come of the burst."""

    tasks: int
    completed: int
    most_pods: int
    first_start_s: float | None
    """From enqueueing to the first task's start."""
    all_done_s: float | None
    zero_s: float | None
    """From enqueueing to the moment at which no pod was left."""
    decisions: Sequence[str]
    """The changes of the number of pods, the oldest first, as the operator tells them."""

    @property
    def is_good(self) -> bool:
        return self.completed == self.tasks and self.zero_s is not None


@contextmanager
def shown(console: Console, tasks: int) -> Iterator[Callable[[Moment], None]]:
    """What to call with each moment, as long as the context lasts."""
    if not console.is_terminal:
        yield _Lines(console, tasks)
        return
    history: list[int] = []
    with Live(console=console, refresh_per_second=8) as live:

        def show(moment: Moment) -> None:
            # One bar for each second, whatever the pace of the moments.
            while len(history) <= moment.elapsed_s:
                history.append(moment.pods)
            live.update(picture(moment, tasks, history))

        yield show


def picture(moment: Moment, tasks: int, history: Sequence[int]) -> Group:
    """The queue, its pods over the last minute, and how far it is."""
    table = Table("level", "waiting", "", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for level, depth in moment.waiting.items():
        table.add_row(
            level, f"{depth:5d}", ProgressBar(total=2 * tasks / len(moment.waiting), completed=depth, width=40)
        )
    return Group(
        table,
        Text(f"\nexecuting {moment.executing:4d}   completed {moment.completed}/{tasks}   {moment.elapsed_s:.0f} s"),
        Text(f"pods      {moment.pods:4d}   {moment.ready} ready   {bars(history[-_SHOWN_SECONDS:])}"),
        Text(f"decided   {moment.decision or 'nothing yet'}"),
        ProgressBar(total=tasks, completed=moment.completed, width=60),
    )


def bars(numbers: Sequence[int]) -> str:
    """A bar for each number, the greatest of them the highest; none for nothing."""
    most = max(numbers, default=0)
    return "".join(_BARS[(number * len(_BARS) - 1) // most] if number else " " for number in numbers)


class _Lines:
    """A line now and then, if it says something new."""

    def __init__(self, console: Console, tasks: int) -> None:
        self._console = console
        self._tasks = tasks
        self._said_at_s = -_LINE_EVERY_S
        self._said = ""

    def __call__(self, moment: Moment) -> None:
        text = line(moment, self._tasks)
        if text == self._said or moment.elapsed_s - self._said_at_s < _LINE_EVERY_S:
            return
        self._console.print(f"{moment.elapsed_s:4.0f} s  {text}", soft_wrap=True, highlight=False)
        self._said, self._said_at_s = text, moment.elapsed_s


def line(moment: Moment, tasks: int) -> str:
    """A moment in one line."""
    waiting = ", ".join(f"{level} {depth}" for level, depth in moment.waiting.items())
    return (
        f"waiting: {waiting}; executing {moment.executing}; completed {moment.completed}/{tasks}; "
        f"pods {moment.pods}, {moment.ready} ready"
    )


def summary(outcome: Outcome) -> Group:
    """What has come of it, and why there were as many pods as there were."""
    table = Table(title="\nSummary", title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_row("tasks completed", f"{outcome.completed} of {outcome.tasks}, {_after(outcome.all_done_s)}")
    table.add_row("first task started", _after(outcome.first_start_s))
    table.add_row("pods at most", str(outcome.most_pods))
    table.add_row("no pod left", _after(outcome.zero_s))
    told = Table("\nWhat the operator decided", box=None, pad_edge=False)
    for decision in outcome.decisions or ["nothing"]:
        told.add_row(Text(decision))
    return Group(table, told)


def _after(seconds: float | None) -> str:
    return "not seen" if seconds is None else f"{seconds:.1f} s after they were enqueued"
