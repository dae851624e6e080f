"""Running other programs: bounded, quiet, and none of them outlives us.

Whoever kills ``make cluster``, even with SIGKILL, must not leave a build or a ``kind create`` running that the next
call would then collide with. So the kernel is asked to end our children with us.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.problem import ClusterProblem

_TAIL_CHARACTERS = 3000


def mortal(command: Sequence[str]) -> list[str]:
    """The command, so that the kernel kills it when the thread that started it ends."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)


def contained(command: Sequence[str], proc: Path = Path("/proc")) -> list[str]:
    """The command with process and mount namespaces of its own: its children and mounts go when it goes.

    ``proc`` is where it finds its processes; a command that is about to change its root has it there.
    """
    unshare = ["unshare", "--fork", "--pid", "--kill-child", f"--mount-proc={proc}"]
    return mortal([*unshare, *command])


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    doing: str | None = None,
) -> str:
    """Run a command to its end and return what it wrote to standard output."""
    what = doing or " ".join(command[:3])
    try:
        done = subprocess.run(
            mortal(command),
            env=None if env is None else os.environ | dict(env),
            cwd=cwd,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            # Who ignores Ctrl-C means its children, too; programs in Go would listen to it all the same.
            start_new_session=signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterProblem(f"{what} took longer than {timeout_s:g} s and was ended.") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-_TAIL_CHARACTERS:]
        raise ClusterProblem(f"{what} failed with status {done.returncode}:\n{said}")
    return done.stdout


def succeeds(command: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> bool:
    """Whether the command ends well and in time."""
    try:
        run(command, timeout_s=timeout_s, env=env)
    except (ClusterProblem, OSError):
        return False
    return True
