"""Installing the peers into the user's cache, each in a folder named after its lock file's hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import Peer, Toolchain

INSTALL_S = 900.0
_LOCKS: dict[Toolchain, tuple[str, ...]] = {
    "own": (),
    "python": ("requirements.lock",),
    "node": ("package-lock.json",),
    "go": ("go.mod", "go.sum", "main.go"),
}


class CannotInstall(Exception):
    """A peer that is left out of this run, and why."""


@dataclass(frozen=True)
class Installed:
    """A peer that can be run."""

    peer: Peer
    root: Path
    concurrency: int

    @property
    def python(self) -> str:
        """The interpreter of its environment."""
        return sys.executable if self.peer.toolchain == "own" else str(self.root / "bin" / "python")

    def command(self, template: str) -> list[str]:
        """A command line of the peer, filled in."""
        values = {
            "{python}": self.python,
            "{root}": str(self.root),
            "{here}": str(self.peer.folder),
            "{concurrency}": str(self.concurrency),
        }
        return [_filled(word, values) for word in template.split()]

    def environment(self) -> dict[str, str]:
        """Its environment variables."""
        variables = dict(self.peer.environment)
        if self.peer.toolchain == "node":
            variables["NODE_PATH"] = str(self.root / "node_modules")
        return variables


def install(peer: Peer, *, concurrency: int | None = None) -> Installed:
    """Install a peer unless it already is. What was begun and not finished is begun anew."""
    root = _cache() / f"{peer.name}-{_digest(peer)}"
    installed = Installed(peer, root, concurrency or peer.concurrency)
    done = root / ".installed"
    if peer.toolchain == "own" or done.exists():
        return installed
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    _INSTALLERS[peer.toolchain](peer, root)
    done.touch()
    return installed


def _python(peer: Peer, root: Path) -> None:
    _run([sys.executable, "-m", "venv", str(root)])
    pip = [str(root / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--require-hashes", "-r", str(peer.folder / "requirements.lock")])


def _node(peer: Peer, root: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(peer.folder / name, root)
    # No package here needs its install script; the native ones come ready-built or have a fallback.
    _run([_tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=root)


def _go(peer: Peer, root: Path) -> None:
    _run([_tool("go"), "build", "-trimpath", "-o", str(root / "bench"), "."], cwd=peer.folder)


_INSTALLERS: dict[Toolchain, Callable[[Peer, Path], None]] = {"python": _python, "node": _node, "go": _go}


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        subprocess.run(
            command, cwd=cwd, check=True, timeout=INSTALL_S, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except subprocess.CalledProcessError as error:
        raise CannotInstall(_reason(error.stdout)) from error
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"not done after {INSTALL_S:g} s") from error
    except OSError as error:
        raise CannotInstall(str(error)) from error


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotInstall(f"{name} is not on this machine")
    return found


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no output")


def _digest(peer: Peer) -> str:
    digest = hashlib.sha256()
    for name in _LOCKS[peer.toolchain]:
        digest.update((peer.folder / name).read_bytes())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "bench"


def _filled(word: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word
