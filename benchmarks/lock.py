"""``python -m benchmarks.lock``: write the peers' lock files anew, from the versions that each peer's folder names.

Neither the address of a registry nor a path of this machine gets into them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import registry

_PIP_COMPILE = (
    "--quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host "
    "--no-emit-find-links --no-emit-options --upgrade --output-file requirements.lock requirements.in"
)
_COMMANDS = {
    "python": [str(Path(sys.executable).parent / "pip-compile"), *_PIP_COMPILE.split()],
    "node": ["npm", "install", "--package-lock-only", "--omit-lockfile-registry-resolved"],
    "go": ["go", "mod", "tidy"],
}


def main() -> None:
    """Lock all, one after the other."""
    for peer in registry.load():
        if peer.toolchain in _COMMANDS:
            sys.stdout.write(f"{peer.title} …\n")
            subprocess.run(_COMMANDS[peer.toolchain], cwd=peer.folder, check=True)


if __name__ == "__main__":
    main()
