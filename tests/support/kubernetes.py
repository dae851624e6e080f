"""Namespaces in a test cluster: apply, wait, look, and tell what happened in them when a test fails.

Everything goes through kubectl, as it does for users.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import mortal, run

# Generous: a loaded machine makes a test slower, never red.
CONDITION_TIMEOUT_S = 180.0
_CALL_TIMEOUT_S = 60.0
_FORWARD_TIMEOUT_S = 30.0
_LOG_LINES = 200
_RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


class Namespace:
    """One namespace, in which only pods of the `restricted` security level are let in."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    # ── from the beginning to the end ────────────────────────────────────────────────────────────────

    def create(self) -> None:
        self.kubectl("create", "namespace", self.name)
        self.kubectl("label", "namespace", self.name, _RESTRICTED)

    def delete(self) -> None:
        """Begin its removal. Nobody waits for it: names are not used twice."""
        # Workers that wait for their grace period to end would only keep the next test's pods from the processor.
        self.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        self.kubectl("delete", "namespace", self.name, "--ignore-not-found", "--wait=false")

    # ── changing and waiting ─────────────────────────────────────────────────────────────────────────

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = _CALL_TIMEOUT_S) -> str:
        """What kubectl answers, asked about this namespace."""
        command = ["kubectl", f"--namespace={self.name}", *arguments]
        return run(command, timeout_s=timeout_s, env=self.cluster.environment(), stdin=stdin)

    def apply(self, manifest: str | Path) -> None:
        """Apply a file, or a text."""
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        self.kubectl("apply", "--filename=-", stdin=text)

    def wait_for(self, condition: str, *what: str, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
        """Wait until ``condition`` (as for ``kubectl wait``) holds for these objects."""
        self.kubectl("wait", f"--for={condition}", *what, f"--timeout={timeout_s:g}s", timeout_s=timeout_s + 30)

    def wait_for_rollout(self, deployment: str, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
        """Wait until every replica of the deployment is ready, and no old one is left."""
        self.kubectl(
            *("rollout", "status", f"deployment/{deployment}", f"--timeout={timeout_s:g}s"), timeout_s=timeout_s + 30
        )

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "--output=json"))
        return found

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """The pods that are there and not about to go."""
        answer = json.loads(self.kubectl("get", "pods", f"--selector={selector}", "--output=json"))
        return [pod for pod in answer["items"] if "deletionTimestamp" not in pod["metadata"]]

    def logs(self, pod: str, *, previous: bool = False) -> str:
        return self.kubectl("logs", pod, "--all-containers", f"--tail={_LOG_LINES}", f"--previous={previous}".lower())

    @contextlib.contextmanager
    def forwarded(self, what: str, port: int) -> Iterator[int]:
        """A port of this machine's loopback that leads to ``port`` of an object such as ``service/redis``."""
        command = ["kubectl", f"--namespace={self.name}", "port-forward", what, f":{port}"]
        with subprocess.Popen(
            mortal(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | self.cluster.environment(),
        ) as process:
            try:
                yield _forwarded_port(process)
            finally:
                process.kill()

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────

    def report(self) -> Iterator[tuple[str, str]]:
        """What one wants to know after a failure: events, objects and the logs of every pod, titled."""
        yield "events", self._asked("get", "events", "--sort-by=.lastTimestamp")
        yield "objects", self._asked("get", "deployments,services,pods,jobs", "--output=yaml")
        for pod in self._asked("get", "pods", "--output=name").split():
            yield f"log of {pod}", self._asked("logs", pod, "--all-containers", f"--tail={_LOG_LINES}")
            before = self._asked("logs", pod, "--all-containers", f"--tail={_LOG_LINES}", "--previous")
            if "not found" not in before:
                yield f"log of {pod} before its restart", before

    def _asked(self, *arguments: str) -> str:
        """The answer, or the reason why there is none: a report must not hide the failure that it is about."""
        try:
            return self.kubectl(*arguments)
        except (ClusterProblem, OSError) as problem:
            return str(problem)


def _forwarded_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    deadline_s = time.monotonic() + _FORWARD_TIMEOUT_S
    said = ""
    while time.monotonic() < deadline_s:
        line = process.stdout.readline()
        if not line:
            break
        said += line
        if found := re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line):
            return int(found.group(1))
    raise AssertionError(f"kubectl port-forward did not come up:\n{said}")
