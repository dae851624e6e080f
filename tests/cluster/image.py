"""Container images made from a folder, without a container engine.

The result is the content of what ``docker save`` writes, as a folder: it is packed on the way into the engine, so
a large image is not written twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.host import architecture
from tests.cluster.process import run

_PACK_TIMEOUT_S = 600
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write(
    folder: Path,
    reference: str,
    root: Path,
    *,
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
    environment: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> None:
    """Write the image ``reference`` with the one layer ``root`` into ``folder``, which must not exist yet."""
    folder.mkdir()
    layer = folder / "layer.tar"
    pack(root, layer)
    with layer.open("rb") as file:
        layer_digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": list(entrypoint),
                "Cmd": list(command),
                "Env": [_PATH, *environment],
                **(settings or {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        }
    )
    config_name = f"{hashlib.sha256(config.encode()).hexdigest()}.json"
    (folder / config_name).write_text(config)
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def pack(folder: Path, archive: Path) -> None:
    """A tar of all that is in the folder."""
    run(
        ["tar", "--create", "--numeric-owner", "--directory", str(folder), "--file", str(archive), "."],
        timeout_s=_PACK_TIMEOUT_S,
        doing=f"packing {folder}",
    )
