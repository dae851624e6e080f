"""A release of the chart in a cluster: installing, changing and removing it with helm, as users do."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster import versions
from tests.cluster.process import run, succeeds
from tests.support.kubernetes import Namespace

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "headrace"
LOCAL_IMAGES = REPOSITORY / "examples" / "local-images.yaml"
"""The values for the images that `tests.support.images` builds."""

_CALL_TIMEOUT_S = 60.0
_WAIT_TIMEOUT_S = 300.0


class Release:
    """One installation of the chart, which may or may not be there."""

    def __init__(self, namespace: Namespace, name: str = "headrace") -> None:
        self.namespace = namespace
        self.name = name

    def install(self, values: Mapping[str, Any] | None = None) -> None:
        """Install it as the README does, with the images that were built here, and wait until it is ready."""
        self._changed("install", f"--values={LOCAL_IMAGES}", "--create-namespace", values=values)

    def upgrade(self, values: Mapping[str, Any] | None = None) -> None:
        """Bring it to what the chart is now, change these values and keep the others, and wait until it is ready."""
        self._changed("upgrade", "--reset-then-reuse-values", values=values)

    def values(self) -> dict[str, Any]:
        """What it was told so far."""
        found: dict[str, Any] = json.loads(
            self._helm("get", "values", self.name, "--output=json", timeout_s=_CALL_TIMEOUT_S)
        )
        return found

    def rollback(self) -> None:
        """Bring it back to the revision before this one."""
        self._helm("rollback", self.name, "--wait", f"--timeout={_WAIT_TIMEOUT_S:g}s", timeout_s=_WAIT_TIMEOUT_S + 30)

    def test(self) -> str:
        """What `helm test` says. If it fails, the log of its pod is in the problem."""
        return self._helm("test", self.name, f"--timeout={_WAIT_TIMEOUT_S:g}s", timeout_s=_WAIT_TIMEOUT_S + 30)

    def uninstall(self) -> str:
        """Remove it. What it leaves is in the answer."""
        waited = ("--wait", f"--timeout={_WAIT_TIMEOUT_S:g}s")
        return self._helm("uninstall", self.name, *waited, timeout_s=_WAIT_TIMEOUT_S + 30)

    def template(self, values: Mapping[str, Any]) -> str:
        """All of its objects, as `helm template` writes them for those who apply them by themselves."""
        # It asks no cluster, and a helm that was built from its modules takes an old Kubernetes for granted.
        flags = (f"--values={LOCAL_IMAGES}", "--values=-", f"--kube-version={versions.KUBERNETES}")
        given = json.dumps(values)
        return self._helm("template", self.name, str(CHART), *flags, timeout_s=_CALL_TIMEOUT_S, stdin=given)

    def is_there(self) -> bool:
        """Whether helm knows it, in whatever state."""
        command = ["helm", "status", self.name, f"--namespace={self.namespace.name}"]
        return succeeds(command, timeout_s=_CALL_TIMEOUT_S, env=self.namespace.cluster.environment())

    # ── its Redis ────────────────────────────────────────────────────────────────────────────────────

    @property
    def connection_secret(self) -> str:
        """The name of the Secret with the URL of the chart's own Redis, under the key `url`."""
        return f"{self.name}-redis"

    def redis_url(self) -> str:
        """That URL, as pods use it."""
        data = self.namespace.get("secret", self.connection_secret)["data"]
        return base64.b64decode(data["url"]).decode()

    def connect(self, namespace: Namespace) -> None:
        """Put the connection Secret into another namespace as well, for the TaskQueues there."""
        metadata = {"name": self.connection_secret}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"url": self.redis_url()}}
        namespace.apply(json.dumps(secret))

    @contextmanager
    def redis_forwarded(self) -> Iterator[str]:
        """A URL of this machine that leads to the chart's own Redis, as long as its pod is there."""
        url = urlsplit(self.redis_url())
        with self.namespace.forwarded(f"service/{self.name}-redis", url.port or 6379) as port:
            yield url._replace(netloc=f"{url.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()

    # ── helm ─────────────────────────────────────────────────────────────────────────────────────────

    def _changed(self, verb: str, *flags: str, values: Mapping[str, Any] | None) -> None:
        waiting = ("--wait", f"--timeout={_WAIT_TIMEOUT_S:g}s")
        arguments = (verb, self.name, str(CHART), *flags, "--values=-", *waiting)
        self._helm(*arguments, timeout_s=_WAIT_TIMEOUT_S + 30, stdin=json.dumps(values or {}))

    def _helm(self, *arguments: str, timeout_s: float, stdin: str | None = None) -> str:
        command = ["helm", *arguments, f"--namespace={self.namespace.name}"]
        return run(command, timeout_s=timeout_s, env=self.namespace.cluster.environment(), stdin=stdin)
