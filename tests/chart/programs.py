"""The programs that look at the chart: helm of both major versions, and kubeconform, through Go's module proxy."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster import binaries, cache
from tests.cluster.host import architecture
from tests.cluster.process import run
from tests.cluster.screen import step

HELM_4 = "v4.3.1"
KUBECONFORM = "v0.8.0"
PROMETHEUS_OPERATOR = "v0.85.0"

_BUILD_TIMEOUT_S = 1800.0
_DOWNLOAD_TIMEOUT_S = 600.0
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false -trimpath", "GOWORK": "off"}


def helm_3() -> Path:
    """The helm of the test cluster."""
    return (binaries.all_programs() if binaries.all_programs_built() else binaries.tools()) / "helm"


def helm_4() -> Path:
    return _installed("helm", "helm.sh/helm/v4/cmd/helm", HELM_4)


def kubeconform() -> Path:
    return _installed("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", KUBECONFORM)


def module_folder(module: str, version: str) -> Path:
    """A module's folder in Go's cache, fetched when it is not there."""
    answer = run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        timeout_s=_DOWNLOAD_TIMEOUT_S,
        env=_ENVIRONMENT,
        doing=f"fetching {module}",
    )
    return Path(json.loads(answer)["Dir"])


def _installed(name: str, package: str, version: str) -> Path:
    def build(scratch: Path) -> None:
        with step(f"Building {name} {version}"):
            run(
                ["go", "install", "-ldflags=-s -w", f"{package}@{version}"],
                timeout_s=_BUILD_TIMEOUT_S,
                env=_ENVIRONMENT | {"GOBIN": str(scratch)},
                doing=f"go install {package}",
            )

    go_version = run(["go", "env", "GOVERSION"], timeout_s=60).strip()
    return cache.ensure(name, cache.fingerprint(go_version, architecture(), package, version), build) / name
