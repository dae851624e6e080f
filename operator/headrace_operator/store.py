"""What the cluster looks like, as far as the watch has told.

Reconciling reads from here and never from the watch: an event only says which object to look at again. So nothing is
lost when events are merged, come twice or come late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .resources import POOL_LABEL

Kind = Literal["TaskQueue", "WorkerPool", "Deployment", "Pod"]
Body = Mapping[str, Any]


class Key(NamedTuple):
    """An object's place."""

    kind: Kind
    namespace: str
    name: str


def key_of(kind: Kind, body: Body) -> Key:
    return Key(kind, body["metadata"]["namespace"], body["metadata"]["name"])


def pool_of(child: Body) -> str | None:
    """The pool that a Deployment or a pod belongs to."""
    name = (child["metadata"].get("labels") or {}).get(POOL_LABEL)
    return name if isinstance(name, str) else None


class Store:
    """Objects by their place. Whoever subscribes is told of every change."""

    def __init__(self) -> None:
        self._objects: dict[Key, Body] = {}
        self._listeners: list[Callable[[Key, Body, bool], None]] = []

    def subscribe(self, listener: Callable[[Key, Body, bool], None]) -> None:
        """Call ``listener(key, body, gone)`` after each change."""
        self._listeners.append(listener)

    def put(self, kind: Kind, body: Body) -> None:
        key = key_of(kind, body)
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] != body["metadata"]["uid"]:
            # It was deleted and made again while nobody looked.
            self._tell(key, known, gone=True)
        elif known is not None and _is_older(body, known):
            return
        self._objects[key] = body
        self._tell(key, body, gone=False)

    def put_own(self, kind: Kind, body: Body) -> None:
        """What our own write has made of an object. Nobody need be told: the watch brings it, too, a little later."""
        key = key_of(kind, body)
        if key in self._objects and not _is_older(body, self._objects[key]):
            self._objects[key] = body

    def remove(self, kind: Kind, body: Body) -> None:
        key = key_of(kind, body)
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._objects[key]
            self._tell(key, known, gone=True)

    def get(self, kind: Kind, namespace: str, name: str) -> Body | None:
        return self._objects.get(Key(kind, namespace, name))

    def all(self, kind: Kind, namespace: str | None = None) -> Iterator[Body]:
        """The objects of a kind, in no order."""
        for key, body in list(self._objects.items()):
            if key.kind == kind and namespace in (None, key.namespace):
                yield body

    def children(self, kind: Kind, namespace: str, pool: str) -> list[Body]:
        """A pool's Deployments or pods."""
        return [body for body in self.all(kind, namespace) if pool_of(body) == pool]

    def compare(self, kind: Kind, listed: list[dict[str, Any]], known_before: set[str]) -> bool:
        """Take over a listing made by asking; returns whether the watch had told all of it.

        ``known_before`` are the uids that were known before the question was asked: of those, what is not in the
        answer is gone. A watch that was cut off does not tell of deletions that it has missed.
        """
        complete = True
        seen = {body["metadata"]["uid"] for body in listed}
        for body in listed:
            key = key_of(kind, body)
            known = self._objects.get(key)
            if known is None or known["metadata"]["uid"] != body["metadata"]["uid"]:
                complete = False
                self.put(kind, body)
        for known in list(self.all(kind)):
            uid = known["metadata"]["uid"]
            if uid in known_before and uid not in seen:
                complete = False
                self.remove(kind, known)
        return complete

    def uids(self, kind: Kind, namespace: str | None = None) -> set[str]:
        return {body["metadata"]["uid"] for body in self.all(kind, namespace)}

    def _tell(self, key: Key, body: Body, *, gone: bool) -> None:
        for listener in self._listeners:
            listener(key, body, gone)


def _is_older(body: Body, known: Body) -> bool:
    """Whether the watch tells what a write of ours has overtaken. Versions of one object's kind can be compared."""
    new, old = body["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]
    return (
        body["metadata"]["uid"] == known["metadata"]["uid"] and new.isdigit() and old.isdigit() and int(new) < int(old)
    )
