"""Writing an object's status: only what has changed, and an Event for each condition that turned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from .events import Recorder
from .kube import ApiProblem, Kube, Resource
from .status import changed, is_bad
from .store import Kind, Store

_log = structlog.get_logger(__name__)


class Reporter:
    """Status and Events of one kind."""

    def __init__(self, kube: Kube, store: Store, recorder: Recorder, kind: Kind, resource: Resource) -> None:
        self._kube = kube
        self._store = store
        self._recorder = recorder
        self._kind = kind
        self._resource = resource

    async def report(self, body: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Make this the object's status."""
        old = body.get("status") or {}
        if not changed(old, status):
            return
        metadata = body["metadata"]
        try:
            written = await self._kube.merge(
                self._resource, metadata["namespace"], metadata["name"], {"status": status}, "status"
            )
        except ApiProblem as problem:
            if problem.is_missing:
                return  # it is gone, and so is all there is to say about it
            raise
        self._store.put_own(self._kind, written)
        for condition in _turned(old.get("conditions") or [], status.get("conditions") or []):
            _log.info(
                "condition turned", kind=self._kind, namespace=metadata["namespace"], name=metadata["name"],
                type=condition["type"], status=condition["status"], reason=condition["reason"],
                message=condition["message"],
            )  # fmt: skip
            severity = "Warning" if is_bad(condition) else "Normal"
            await self._recorder.say(body, severity, condition["reason"], condition["message"])  # type: ignore[arg-type]

    async def say(self, body: Mapping[str, Any], reason: str, message: str) -> None:
        """Tell of something that is no condition."""
        metadata = body["metadata"]
        _log.info("told", object=f"{metadata['namespace']}/{metadata['name']}", reason=reason, message=message)
        await self._recorder.say(body, "Normal", reason, message)


def _turned(old: list[Mapping[str, Any]], new: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The conditions that say something new. What was never said and is as it should be is no news."""
    before = {condition.get("type"): (condition.get("status"), condition.get("reason")) for condition in old}
    return [
        condition
        for condition in new
        if before.get(condition["type"]) != (condition["status"], condition["reason"])
        and (condition["type"] in before or condition["type"] == "Ready" or is_bad(condition))
    ]
