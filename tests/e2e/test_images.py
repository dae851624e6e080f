"""The images: unprivileged, without a shell in between, compiled, and with nothing in them that is not needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.lifecycle import Cluster
from tests.cluster.process import run
from tests.support import images

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TIMEOUT_S = 120.0
NOT_COMPILED = """
import os, sys
import headrace.cli.main, headrace.worker.worker, uvloop
specs = [module.__spec__ for module in sys.modules.values() if getattr(module, "__spec__", None)]
from_files = [spec for spec in specs if spec.cached and spec.origin.endswith(".py")]
assert len(from_files) > 100
print(*[spec.name for spec in from_files if not os.path.exists(spec.cached)])
"""
MISSING = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if not importlib.util.find_spec(name)])"


@pytest.fixture(scope="module")
def docker(cluster: Cluster) -> dict[str, str]:
    """The environment in which `docker` has the images."""
    if cluster.provider == "named":
        pytest.skip("the images are not on this machine")
    return cluster.environment()


def python_in(image: str, env: dict[str, str], *arguments: str) -> str:
    """Run Python in the image as Kubernetes would: as its own user, and unable to write anything."""
    command = ["docker", "run", "--rm", "--read-only", "--cap-drop=ALL", "--network=none", "--entrypoint=python", image]
    return run([*command, *arguments], timeout_s=TIMEOUT_S, env=env).strip()


def settings_of(image: str, env: dict[str, str]) -> dict[str, Any]:
    answer = json.loads(run(["docker", "image", "inspect", image], timeout_s=TIMEOUT_S, env=env))
    settings: dict[str, Any] = answer[0]["Config"]
    return settings


@pytest.mark.parametrize(
    ("image", "entry"),
    [
        (images.OPERATOR, ["/opt/headrace/bin/headrace"]),
        (images.WORKER, ["/opt/headrace/bin/headrace", "worker"]),
        (images.REDIS, ["/usr/bin/redis-server"]),
    ],
)
def test_an_image_runs_its_program_itself_and_not_as_root(docker, image, entry):
    settings = settings_of(image, docker)
    assert settings["Entrypoint"] == entry
    assert settings["User"] == "65532:65532"
    assert settings["Labels"]["org.opencontainers.image.title"] == image.removesuffix(":dev")
    assert settings["Labels"]["org.opencontainers.image.description"]


@pytest.mark.parametrize("image", [images.OPERATOR, images.WORKER])
def test_an_image_of_ours_is_compiled_and_says_where_it_comes_from(docker, image):
    assert python_in(image, docker, "-c", NOT_COMPILED) == ""
    labels = settings_of(image, docker)["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert len(labels["org.opencontainers.image.revision"]) in {len("unknown"), 40}


def test_the_worker_has_no_operator_and_the_operator_has_one(docker):
    """Nor what makes structlog slow to import, or belongs to other programs."""
    foreign = ["kopf", "kubernetes", "pydantic", "pytest", "rich", "typer"]
    assert python_in(images.WORKER, docker, "-c", MISSING, *foreign).split() == foreign
    assert python_in(images.OPERATOR, docker, "-c", MISSING, "headrace", "kopf", "kubernetes") == ""


def test_the_operator_image_answers(docker):
    command = ["docker", "run", "--rm", "--read-only", "--network=none", images.OPERATOR, "--help"]
    assert "a Kubernetes-native priority task queue" in run(command, timeout_s=TIMEOUT_S, env=docker)
