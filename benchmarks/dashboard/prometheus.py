"""Asking a Prometheus over HTTP."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TIMEOUT_S = 30.0


class PrometheusProblem(Exception):
    """Raised when Prometheus does not answer, or does not understand a query."""


@dataclass(frozen=True)
class Series:
    """One line: its labels, and its values by time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """Seconds since 1970 and the value, the earliest first. What is not a number is left out."""


class Prometheus:
    """A Prometheus, by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def now(self, query: str, at_s: float | None = None) -> list[Series]:
        """What a query gives at one moment; each series has one point."""
        moment = {} if at_s is None else {"time": f"{at_s:.3f}"}
        found = self.ask("query", query=query, **moment)["result"]
        return [Series(each["metric"], _numbers([each["value"]])) for each in found]

    def over(self, query: str, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        """What a query gives from one moment to another, in steps."""
        span = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        found = self.ask("query_range", query=query, **span)["result"]
        return [Series(each["metric"], _numbers(each["values"])) for each in found]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing, each with its ``labels``, ``annotations`` and ``state``."""
        found: list[dict[str, Any]] = self.ask("alerts")["alerts"]
        return found

    def ask(self, what: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        about = parameters.get("query", what)
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise PrometheusProblem(f"{self.url} refuses {about!r}: {said[:500]}") from error
        except (OSError, ValueError) as error:
            raise PrometheusProblem(f"{self.url} does not answer {about!r}: {error}; is this a Prometheus?") from error


def _numbers(values: list[list[Any]]) -> tuple[tuple[float, float], ...]:
    points = ((float(at_s), float(text)) for at_s, text in values)
    return tuple((at_s, value) for at_s, value in points if math.isfinite(value))
