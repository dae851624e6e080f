"""Numbers as people read them, by the names that Grafana has for units, and scales that end on round ones."""

from __future__ import annotations

import math
from typing import Final

_THOUSANDS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def shown(value: float, unit: str) -> str:
    """A value in a unit of Grafana: ``short``, ``s``, ``ops`` or ``percentunit``."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        if value == 0:
            return "0"
        factor, name = next(((each, text) for each, text in _TIMES if abs(value) >= each), _TIMES[-1])
        return f"{value / factor:.3g} {name}"
    suffix = "/s" if unit == "ops" else ""
    for factor, name in _THOUSANDS:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {name}{suffix}"
    return f"{value:.3g}{suffix}"


def scale(highest: float, most: int) -> list[float]:
    """Round numbers from 0 to at least ``highest``, no more than ``most`` and one."""
    if highest <= 0:
        return [0.0, 1.0]
    step = _round_up(highest / most)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _round_up(step: float) -> float:
    """The next of …, 0.1, 0.2, 0.5, 1, 2, 5, …"""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))
