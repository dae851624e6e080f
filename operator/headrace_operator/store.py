"""What the cluster looks like, as far as the watch has told.

Reconciling reads from here and never from the watch: an event only says which object to look at again. So nothing is
lost when events are merged, come twice or come late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        # By kind and namespace, then by name: looking at one pool must not mean looking through a whole cluster.
        self._objects: dict[tuple[Kind, str], dict[str, Body]] = {}
        self._listeners: list[Callable[[Key, Body, bool], None]] = []

    def subscribe(self, listener: Callable[[Key, Body, bool], None]) -> None:
        """Call ``listener(key, body, gone)`` after each change."""
        self._listeners.append(listener)

    def put(self, kind: Kind, body: Body) -> None:
        key = key_of(kind, body)
        known = self.get(*key)
        if known is not None and known["metadata"]["uid"] != body["metadata"]["uid"]:
            # It was deleted and made again while nobody looked.
            self._tell(key, known, gone=True)
        elif known is not None and _is_older(body, known):
            return
        self._objects.setdefault((kind, key.namespace), {})[key.name] = body
        self._tell(key, body, gone=False)

    def put_own(self, kind: Kind, body: Body) -> None:
        """What our own write has made of an object. Nobody need be told: the watch brings it, too, a little later."""
        key = key_of(kind, body)
        known = self.get(*key)
        if known is not None and not _is_older(body, known):
            self._objects[kind, key.namespace][key.name] = body

    def remove(self, kind: Kind, body: Body) -> None:
        key = key_of(kind, body)
        known = self.get(*key)
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._objects[kind, key.namespace][key.name]
            if not self._objects[kind, key.namespace]:
                del self._objects[kind, key.namespace]
            self._tell(key, known, gone=True)

    def get(self, kind: Kind, namespace: str, name: str) -> Body | None:
        return self._objects.get((kind, namespace), {}).get(name)

    def all(self, kind: Kind, namespace: str | None = None) -> list[Body]:
        """The objects of a kind, in no order."""
        if namespace is not None:
            return list(self._objects.get((kind, namespace), {}).values())
        return [body for (each, _), bodies in self._objects.items() if each == kind for body in bodies.values()]

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
            known = self.get(*key_of(kind, body))
            if known is None or known["metadata"]["uid"] != body["metadata"]["uid"]:
                complete = False
                self.put(kind, body)
        for known in self.all(kind):
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
