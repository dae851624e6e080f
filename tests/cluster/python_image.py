"""The base image of Headrace's own images where none can be pulled: Debian with Python and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster import cache, debian, image, versions
from tests.cluster.host import architecture
from tests.cluster.screen import step

_PACKAGES = ("ca-certificates", "python3", "python3-venv")


def key() -> str:
    return cache.fingerprint(
        versions.DEBIAN_SUITE,
        architecture(),
        " ".join(_PACKAGES),
        Path(__file__),
        Path(debian.__file__),
        Path(image.__file__),
    )


def reference() -> str:
    return f"localhost/headrace-python:{key()}"


def python_image() -> Path:
    """The folder with the image, for ``dockerd.load``."""

    def build(scratch: Path) -> None:
        with step("Making the Python base image from Debian packages"):
            root = scratch / "root"
            debian.bootstrap(root, _PACKAGES)
            image.write(scratch / "image", reference(), root, command=["python3"], environment=["LANG=C.UTF-8"])
            shutil.rmtree(root)

    return cache.ensure("python-image", key(), build) / "image"
