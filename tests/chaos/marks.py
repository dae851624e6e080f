"""Who executed what, and when: marks that a handler leaves behind as it begins and as it ends.

A mark is one ``write`` to a file of the worker's own. It costs two microseconds, so every execution of a million
tasks can be marked; it survives the worker's death, and it needs no Redis. The time is the machine's monotonic
clock, which all its processes share and which no fault here touches.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
from pathlib import Path

_MARK = struct.Struct("<16sd?")  # task id, monotonic time in s, whether it begins
_READ_BYTES = _MARK.size * 100_000


class MarkWriter:
    """The marks of this process."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / str(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begins(self, task_id: str) -> None:
        self._write(task_id, True)

    def ends(self, task_id: str) -> None:
        self._write(task_id, False)

    def _write(self, task_id: str, begins: bool) -> None:
        os.write(self._file, _MARK.pack(bytes.fromhex(task_id.replace("-", "")), time.monotonic(), begins))


class _Trail:
    """How far one worker's file has been read, and what its handlers are at."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.offset = 0
        self.open: dict[bytes, float] = {}
        """Tasks whose handler has begun and not ended, with the time it began at."""


class Executions:
    """Everything that the marks say. Only the files of workers that still run are read again and again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._trails: dict[int, _Trail] = {}
        self._times: dict[bytes, int] = {}
        self._interrupted: dict[bytes, tuple[int, float]] = {}
        self._again: list[bytes] = []
        self._latest: dict[bytes, int] = {}  # the process that began a task last, for those executed more than once
        self.begin_times_s: dict[str, list[float]] | None = None
        """When each task began, all attempts; kept only by drills that ask for it (set it to an empty dict)."""
        self.recoveries_s: list[float] = []
        """From a fault that met a running handler to the moment the task began again in another process."""

    def follow(self, pid: int) -> None:
        """A worker has started."""
        self._trails[pid] = _Trail(pid)

    def forget(self, pid: int) -> None:
        """A worker has ended; what it left is read a last time."""
        self._read(self._trails[pid])
        del self._trails[pid]

    def read(self) -> None:
        """Take in what has been written since the last time."""
        for trail in self._trails.values():
            self._read(trail)

    def running(self, pid: int) -> int:
        """How many handlers run in this process, as of its last mark."""
        self._read(self._trails[pid])
        return len(self._trails[pid].open)

    def interrupt(self, pid: int, at_s: float) -> int:
        """A fault has met this process: its running handlers' tasks have to begin again elsewhere; returns how many."""
        self.read()
        # A handler whose lease was lost before is only winding up: its task has begun elsewhere already.
        held = [task for task in self._trails[pid].open if self._latest.get(task, pid) == pid]
        for task in held:
            self._interrupted.setdefault(task, (pid, at_s))
        return len(held)

    def still_interrupted(self) -> list[str]:
        """Tasks that were interrupted and have not begun again."""
        return [str(uuid.UUID(bytes=task)) for task in self._interrupted]

    @property
    def executed_again(self) -> list[str]:
        """The ids of tasks that were executed more than once."""
        return [str(uuid.UUID(bytes=task)) for task in self._again]

    @property
    def executed(self) -> int:
        """How many tasks were executed at least once."""
        return len(self._times)

    def _read(self, trail: _Trail) -> None:
        try:
            with open(self._directory / str(trail.pid), "rb") as file:
                file.seek(trail.offset)
                while data := file.read(_READ_BYTES):
                    whole = len(data) // _MARK.size * _MARK.size
                    for task, at_s, begins in _MARK.iter_unpack(data[:whole]):
                        self._take(trail, task, at_s, begins)
                    trail.offset += whole
                    if whole < len(data):
                        break  # the rest of the last mark is yet to come
        except FileNotFoundError:
            return  # it has executed nothing yet

    def _take(self, trail: _Trail, task: bytes, at_s: float, begins: bool) -> None:
        if not begins:
            trail.open.pop(task, None)
            return
        trail.open[task] = at_s
        times = self._times.get(task, 0) + 1
        self._times[task] = times
        if times > 1:
            self._latest[task] = trail.pid
        if times == 2:
            self._again.append(task)
        if self.begin_times_s is not None:
            self.begin_times_s.setdefault(str(uuid.UUID(bytes=task)), []).append(at_s)
        if self._interrupted and task in self._interrupted:
            pid, fault_at_s = self._interrupted[task]
            if pid != trail.pid and at_s >= fault_at_s:
                del self._interrupted[task]
                self.recoveries_s.append(at_s - fault_at_s)
