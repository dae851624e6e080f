"""Kubernetes Events: what a person would want to know, said once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog

from .kube import EVENTS, FIELD_MANAGER, ApiProblem, Kube

_SAY_AGAIN_AFTER_S: Final = 3600.0
_MOST_REMEMBERED: Final = 10_000
_LONGEST_MESSAGE: Final = 1000

_log = structlog.get_logger(__name__)


class Recorder:
    """Writes Events about our objects. One that cannot be written is logged; nothing depends on it."""

    def __init__(self, kube: Kube, identity: str) -> None:
        self._kube = kube
        self._identity = identity
        self._said: dict[tuple[str, str, str], float] = {}

    async def say(
        self, about: Mapping[str, Any], kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Tell it, unless the same was told of the same object a short while ago."""
        metadata = about["metadata"]
        key = (metadata["uid"], reason, message)
        now_s = time.monotonic()
        if now_s - self._said.get(key, -_SAY_AGAIN_AFTER_S) < _SAY_AGAIN_AFTER_S:
            return
        if len(self._said) >= _MOST_REMEMBERED:
            self._said.clear()
        self._said[key] = now_s
        name = f"{metadata['name'][:200]}.{secrets.token_hex(8)}"
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": f"headrace.dev/{FIELD_MANAGER}",
            "reportingInstance": self._identity[:120],
        }
        try:
            await self._kube.create(EVENTS, metadata["namespace"], body)
        except ApiProblem as problem:
            if problem.is_of_dying_namespace:
                return
            _log.warning("could not write an event", reason=reason, message=message, error=str(problem))
