"""What the processes of one test run share: a folder, things that are made once, and turns at the cluster.

The processes are those of pytest-xdist; a run without it is a single one. Whoever begins the run makes the folder and
tells the others of it, and is the last to end: what a run has made is undone there. All locks are the kernel's, so a
process that dies holds none.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.cluster.cache import locked
from tests.cluster.problem import ClusterProblem

_WORKER_INPUT = "headrace_run"
_POLL_S = 0.2


class Run:
    """One run of the tests, as each of its processes sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, what: str, make: Callable[[], object]) -> None:
        """Have ``make`` called by the first process that gets here. The others wait for it, and share its failure."""
        outcome = self.folder / what
        with self.locked(what):
            if not outcome.exists():
                try:
                    make()
                except Exception as error:
                    notes = getattr(error, "__notes__", [])
                    outcome.write_text("\n".join([f"{type(error).__name__}: {error}", *notes]))
                    raise
                outcome.touch()
            elif failure := outcome.read_text():
                raise ClusterProblem(f"Another process of this run has tried {what!r} in vain:\n{failure}")

    def locked(self, what: str) -> AbstractContextManager[None]:
        """Keep the other processes from making this, as long as the context lasts."""
        return locked(self.folder / f"{what}.lock", f"another process of this run has {what!r}")

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """A turn at what all share: beside others, or without any. Who wants to be alone lets all others go first."""
        with (self.folder / "turns").open("w") as turns, (self.folder / "waiting").open("w") as waiting:
            if alone:
                _lock_when_nobody_waits(turns, waiting)
            else:
                fcntl.flock(waiting, fcntl.LOCK_SH)
                fcntl.flock(turns, fcntl.LOCK_SH)
            fcntl.flock(waiting, fcntl.LOCK_UN)
            yield


def _lock_when_nobody_waits(turns: IO[str], waiting: IO[str]) -> None:
    while True:
        fcntl.flock(turns, fcntl.LOCK_EX)
        try:
            fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            fcntl.flock(turns, fcntl.LOCK_UN)
            time.sleep(_POLL_S)


RUN = pytest.StashKey[Run]()


def begins_here(config: pytest.Config) -> bool:
    """Whether this process has begun the run, and will end it."""
    return not hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make the folder before anybody asks for it; it goes after all that the others undo."""
    if begins_here(config):
        folder = tempfile.mkdtemp(prefix="headrace-run-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    else:
        folder = config.workerinput[_WORKER_INPUT]  # type: ignore[attr-defined]
    config.stash[RUN] = Run(Path(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a process that pytest-xdist is about to start where the folder is."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    node.workerinput[_WORKER_INPUT] = str(config.stash[RUN].folder)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def one_run(pytestconfig: pytest.Config) -> Run:
    """What this process shares with the others of its run."""
    return pytestconfig.stash[RUN]
