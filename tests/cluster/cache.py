"""Things that are slow to build, kept by version.

An entry is built in a folder beside its place and renamed when it is whole, so what stands in its place is
never half-written. A lock per entry makes a second builder wait for the first one; the kernel gives the lock
back when its holder dies, and the next builder removes what the dead one left.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.places import cache_root
from tests.cluster.screen import say


def fingerprint(*inputs: str | Path) -> str:
    """A short key of everything that decides about an entry: strings, files, and folders with all that is in them."""
    digest = hashlib.sha256()
    for item in inputs:
        if isinstance(item, str):
            digest.update(f"text {item}\0".encode())
            continue
        for file in sorted(item.rglob("*")) if item.is_dir() else [item]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"file {file.relative_to(item.parent)}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def has(name: str, key: str) -> bool:
    return _place(name, key).is_dir()


def ensure(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder of the entry, built by ``build(scratch folder)`` when it is not there yet."""
    place = _place(name, key)
    if place.is_dir():
        return place
    with locked(place.with_name(f"{place.name}.lock"), f"another process builds {name}"):
        if place.is_dir():
            return place
        scratch = place.with_name(f"{place.name}.unfinished")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        build(scratch)
        # The contents reach the disk before the name does: a power cut must not leave a whole name with half a file.
        os.sync()
        scratch.rename(place)
    return place


@contextmanager
def locked(path: Path, reason: str) -> Iterator[None]:
    """Hold the lock at ``path``; who has to wait for it is told why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting: {reason}.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _place(name: str, key: str) -> Path:
    return cache_root() / f"{name}-{key}"
