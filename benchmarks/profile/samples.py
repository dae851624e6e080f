"""Reading the samples: which part of the program each belongs to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = b"Stack (most recent call first):"
COLLECTED = b"garbage collected, ns: "
"""How the worker writes down what a garbage collection took, between the samples."""
_COLLECTED = re.compile(COLLECTED + rb"(\d+)\n")
_FRAME = re.compile(rb'File "(.*)", line \d+ in (.*)')

GROUPS: tuple[tuple[str, str], ...] = (
    # The first pattern that is found in a file's path decides.
    ("worker: heartbeat, janitor", r"headrace/worker/(heartbeat|janitor|health|canceller)\.py"),
    ("worker: running handlers", r"headrace/worker/(execution|threads|processes)\.py"),
    ("worker: claiming and settling", r"headrace/worker/"),
    ("arguments, messages, context", r"headrace/(app|model)/"),
    ("queue: packing and unpacking", r"headrace/queue/(wire|queue|scripts)\.py"),
    ("queue: sending and receiving", r"headrace/queue/"),
    ("redis-py", r"/redis/"),
    ("event loop (uvloop), sockets, ending tasks", r"asyncio/runners\.py|weakref"),  # a loop keeps a set of its tasks
    ("asyncio", r"asyncio/"),
    ("the handler", r"benchmarks/"),
)
OTHER = "other"
_PATTERNS = [(name, re.compile(pattern)) for name, pattern in GROUPS]


@dataclass(frozen=True)
class Sample:
    """The innermost Python function, and the file it is in."""

    path: str
    function: str

    @property
    def group(self) -> str:
        """The part of the program it belongs to."""
        return next((name for name, pattern in _PATTERNS if pattern.search(self.path)), OTHER)

    @property
    def place(self) -> str:
        """For people: the end of the path, which says nothing about the machine."""
        return f"{'/'.join(self.path.split('/')[-2:])}: {self.function}"


def read(text: bytes) -> Iterator[Sample]:
    """The samples in what `faulthandler` wrote; one cut off at either end is left out."""
    for stack in text.split(_HEADER)[1:]:
        found = _FRAME.search(stack)
        if found is not None:
            yield Sample(found[1].decode(errors="replace"), found[2].decode(errors="replace"))


def collecting_s(text: bytes) -> float:
    """Processor time of garbage collection."""
    return sum(int(took_ns) for took_ns in _COLLECTED.findall(text)) / 1e9


def shares(samples: list[Sample]) -> dict[str, float]:
    """Each group's part of all samples, in the order of `GROUPS`."""
    counts = Counter(sample.group for sample in samples)
    total = max(1, len(samples))
    return {name: counts[name] / total for name in (*(name for name, _ in GROUPS), OTHER) if counts[name]}


def busiest(samples: list[Sample], number: int) -> dict[str, float]:
    """The functions with the most samples, and their parts."""
    counts = Counter(sample.place for sample in samples)
    total = max(1, len(samples))
    return {place: count / total for place, count in counts.most_common(number)}
