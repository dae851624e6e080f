"""What happens in a cluster while a test goes on: the operator's log, Deployments and pods, followed as they change.

Each is followed by a kubectl of its own, in a thread that starts it again when it ends: a log ends with its container,
and the API server ends every watch after a while. Times are told by the clock of this machine, which a cluster in
containers shares.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.cluster.problem import ClusterProblem
from tests.cluster.process import mortal
from tests.support.kubernetes import Namespace
from tests.support.operator import OPERATOR_PODS

_AGAIN_S: Final = 0.5
_NEW_PODS_S: Final = 5.0
_START_TIMEOUT_S: Final = 30.0
_OVERLAP: Final = timedelta(seconds=30)


class Follower:
    """Runs a command again and again until closed, and hands on each of its lines with the moment it was read."""

    def __init__(self, namespace: Namespace, command: Callable[[], Sequence[str]], take: Callable[[str, float], None]):
        self._namespace = namespace
        self._command = command
        self._take = take
        self._process: subprocess.Popen[str] | None = None
        self._closed = threading.Event()
        self.has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        # The thread starts the process itself: the kernel ends the process together with the thread.
        while not self._closed.is_set():
            command = mortal(["kubectl", f"--namespace={self._namespace.name}", *self._command()])
            env = os.environ | self._namespace.cluster.environment()
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
            ) as self._process:
                assert self._process.stdout is not None
                if self._closed.is_set():
                    self._process.kill()
                for line in self._process.stdout:
                    self.has_begun.set()
                    self._take(line.rstrip("\n"), time.time())
            self._closed.wait(_AGAIN_S)


# ── the operator's log ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LogLine:
    """One thing that the operator has said."""

    at_s: float
    """When it said so, by its own clock."""
    event: str
    said: dict[str, Any]
    """All of it."""

    @property
    def is_problem(self) -> bool:
        return self.said.get("level") in ("error", "critical") or "exception" in self.said


def log_line(text: str) -> LogLine | None:
    """The line, unless it only tells of a request to the API server or is not in our format."""
    try:
        said = json.loads(text)
        at_s = datetime.fromisoformat(said["timestamp"]).timestamp()
    except (ValueError, TypeError, KeyError):
        return None
    event = str(said.get("event", ""))
    return None if event == "api request" else LogLine(at_s, event, said)


class OperatorLog:
    """What the operator says from now on, all replicas together."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._since = self._latest = datetime.now(UTC)
        self._lines: list[LogLine] = []
        self._seen: set[str] = set()
        self._news = threading.Condition()
        self._followers: dict[str, Follower] = {}
        self._closed = threading.Event()
        self._look_for_pods()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(_START_TIMEOUT_S)
        for follower in self._followers.values():
            follower.close()

    def lines(self, event: str | None = None, *, namespace: str | None = None, since_s: float = 0.0) -> list[LogLine]:
        """What it has said about this, in the order in which it was read."""
        with self._news:
            return [line for line in self._lines if _is_about(line, event, namespace, since_s)]

    def problems(self) -> list[LogLine]:
        with self._news:
            return [line for line in self._lines if line.is_problem]

    def next(self, is_it: Callable[[LogLine], bool], *, timeout_s: float, what: str) -> LogLine:
        """The first line of which this is true, as soon as it is there."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            looked_at = 0
            while True:
                for line in self._lines[looked_at:]:
                    if is_it(line):
                        return line
                looked_at = len(self._lines)
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"the operator did not say within {timeout_s:g} s that {what}")
                self._news.wait(left_s)

    def _run(self) -> None:
        while not self._closed.wait(_NEW_PODS_S):
            with contextlib.suppress(ClusterProblem):
                self._look_for_pods()

    def _look_for_pods(self) -> None:
        names = {pod["metadata"]["name"] for pod in self._namespace.pods(OPERATOR_PODS)}
        for name in names - self._followers.keys():
            command = functools.partial(self._command, name)
            self._followers[name] = Follower(self._namespace, command, self._take)
        for name in self._followers.keys() - names:
            self._followers.pop(name).close()

    def _command(self, pod: str) -> Sequence[str]:
        # Somewhat more than is new: one replica's last line may be younger than another's, and what was read is known.
        with self._news:
            since = max(self._since, self._latest - _OVERLAP)
        return ("logs", pod, "--follow", f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}")

    def _take(self, text: str, _: float) -> None:
        line = log_line(text)
        if line is None or line.at_s < self._since.timestamp() or text in self._seen:
            return
        with self._news:
            self._seen.add(text)
            self._lines.append(line)
            self._latest = max(self._latest, datetime.fromtimestamp(line.at_s, UTC))
            self._news.notify_all()


def _is_about(line: LogLine, event: str | None, namespace: str | None, since_s: float) -> bool:
    return event in (None, line.event) and namespace in (None, line.said.get("namespace")) and line.at_s >= since_s


# ── objects ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Sighting:
    """An object as the API server told of it, and when."""

    at_s: float
    is_gone: bool
    name: str
    fields: tuple[str, ...]


class Watch:
    """The objects of a kind: some fields of each, whenever one has changed."""

    def __init__(self, namespace: Namespace, kind: str, *fields: str, selector: str = "") -> None:
        self._sightings: list[Sighting] = []
        self._latest: dict[str, Sighting] = {}
        self._news = threading.Condition()
        columns = "".join(f"|{{.object{field}}}" for field in fields)
        # Not tabs: kubectl would make columns of them.
        output = f'--output=jsonpath={{.type}}|{{.object.metadata.name}}{columns}{{"\\n"}}'
        command = ("get", kind, f"--selector={selector}", "--watch", "--output-watch-events", output)
        self._follower = Follower(namespace, lambda: command, self._take)

    def close(self) -> None:
        self._follower.close()

    def sightings(self, since_s: float = 0.0) -> list[Sighting]:
        with self._news:
            return [seen for seen in self._sightings if seen.at_s >= since_s]

    def latest(self) -> dict[str, Sighting]:
        """Each object that is there, as it was seen last."""
        with self._news:
            return dict(self._latest)

    def wait(self, is_so: Callable[[dict[str, Sighting]], bool], *, timeout_s: float, what: str) -> float:
        """Until it is so; the answer is the moment."""
        deadline_s = time.monotonic() + timeout_s
        while not is_so(self.latest()):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise AssertionError(f"{what} within {timeout_s:g} s (last: {self.latest()})")
            with self._news:
                self._news.wait(min(left_s, 1.0))
        return time.time()

    def _take(self, text: str, at_s: float) -> None:
        happened, name, *fields = text.split("|")
        with self._news:
            seen = Sighting(at_s, happened == "DELETED", name, tuple(fields))
            self._sightings.append(seen)
            if seen.is_gone:
                self._latest.pop(name, None)
            else:
                self._latest[name] = seen
            self._news.notify_all()


REPLICAS: Final = ".spec.replicas"
POOL: Final = r".metadata.labels.headrace\.dev/pool"
DELETED_AT: Final = ".metadata.deletionTimestamp"
PHASE: Final = ".status.phase"


@contextlib.contextmanager
def following(*followed: OperatorLog | Watch) -> Iterator[None]:
    """Close them afterwards."""
    try:
        yield
    finally:
        for each in followed:
            each.close()
