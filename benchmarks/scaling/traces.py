"""Loads: when tasks come, on which level, and how long each takes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
LEVELS: Final = ("high", "normal", "low")

_LEVEL_WEIGHTS: Final = (10, 60, 30)
_USUAL_S, _USUAL_SPREAD = 2.0, 0.5
_LONG_S, _LONG_SPREAD, _LONG_SHARE = 30.0, 0.1, 0.05
_TASKS_PER_CALL, _CALLS_PER_S = 100, 100.0
"""A burst is a producer that enqueues in bulk, as fast as it can."""


class Task(NamedTuple):
    """What comes."""

    at_s: float
    level: str
    duration_s: float


class Trace(NamedTuple):
    """A load, the earliest task first."""

    name: str
    about: str
    tasks: tuple[Task, ...]
    levels: tuple[str, ...] = LEVELS
    """Highest first; the queue's selection is strict."""


def steady(seed: int, *, per_s: float = 8.0, span_s: float = 4 * HOUR_S) -> Trace:
    """Poisson arrivals at one rate."""
    chance = random.Random(f"steady {seed}")
    tasks = tuple(_task(at_s, chance) for at_s in _poisson(lambda _: per_s, per_s, span_s, chance))
    return Trace("steady", f"{per_s:g} tasks per second for {_told(span_s)}", tasks)


def wave(seed: int, *, peak_per_s: float = 5.0, span_s: float = DAY_S) -> Trace:
    """A day: nothing at night, and a sine over the rest of it with its peak at noon."""
    chance = random.Random(f"wave {seed}")

    def rate(at_s: float) -> float:
        return max(0.0, peak_per_s * (0.4 - 0.6 * math.cos(2 * math.pi * at_s / span_s)))

    tasks = tuple(_task(at_s, chance) for at_s in _poisson(rate, peak_per_s, span_s, chance))
    return Trace("wave", f"from none at night to {peak_per_s:g} tasks per second at noon, {_told(span_s)}", tasks)


def bursts(seed: int, *, least: int = 20, most: int = 2000, every_s: float = 600.0, span_s: float = DAY_S) -> Trace:
    """Bursts at random moments, as many small ones as large ones (their logarithm is uniform), and nothing between."""
    chance = random.Random(f"bursts {seed}")
    tasks: list[Task] = []
    at_s = chance.expovariate(1 / every_s)
    while at_s < span_s:
        size = round(math.exp(chance.uniform(math.log(least), math.log(most))))
        tasks += [_task(at_s + index // _TASKS_PER_CALL / _CALLS_PER_S, chance) for index in range(size)]
        at_s += chance.expovariate(1 / every_s)
    tasks.sort()  # two bursts may overlap
    about = f"{least} to {most} tasks at once, every {every_s / 60:g} min on average, {_told(span_s)}"
    return Trace("bursts", about, tuple(tasks))


SYNTHETIC: Final[dict[str, Callable[[int], Trace]]] = {"steady": steady, "wave": wave, "bursts": bursts}


class BadRecord(Exception):
    """A file that does not hold a recorded load."""


def recorded(path: Path, levels: tuple[str, ...] = LEVELS) -> Trace:
    """A load from a file of JSON lines: ``{"at_s": 0.0, "level": "normal", "duration_s": 2.5}``."""
    tasks = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            task = Task(float(entry["at_s"]), str(entry["level"]), float(entry["duration_s"]))
        except (ValueError, TypeError, KeyError) as error:
            raise BadRecord(f"{path.name}, line {number}: at_s, level and duration_s are needed ({error!r})") from error
        if task.level not in levels:
            raise BadRecord(f"{path.name}, line {number}: {task.level!r} is not one of {', '.join(levels)}")
        if not (math.isfinite(task.at_s) and 0 <= task.duration_s < math.inf):
            raise BadRecord(f"{path.name}, line {number}: the times have to be finite, and a duration not negative")
        tasks.append(task)
    if not tasks:
        raise BadRecord(f"{path.name} holds no tasks")
    # Whenever the recording was made, the simulation begins with its first task.
    tasks.sort()
    begin_s = tasks[0].at_s
    shifted = tuple(task._replace(at_s=task.at_s - begin_s) for task in tasks)
    return Trace("recorded", path.name, shifted, levels)


def _poisson(
    rate: Callable[[float], float], most_per_s: float, span_s: float, chance: random.Random
) -> Iterator[float]:
    """Arrivals at a rate that changes: those of the highest rate, thinned out."""
    at_s = chance.expovariate(most_per_s)
    while at_s < span_s:
        if chance.random() * most_per_s < rate(at_s):
            yield at_s
        at_s += chance.expovariate(most_per_s)


def _task(at_s: float, chance: random.Random) -> Task:
    (level,) = chance.choices(LEVELS, _LEVEL_WEIGHTS)
    middle_s, spread = (_LONG_S, _LONG_SPREAD) if chance.random() < _LONG_SHARE else (_USUAL_S, _USUAL_SPREAD)
    return Task(at_s, level, middle_s * math.exp(chance.gauss(0.0, spread)))


def _told(span_s: float) -> str:
    return f"{span_s / HOUR_S:.3g} h"
