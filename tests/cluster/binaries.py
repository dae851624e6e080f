"""The programs of a cluster, built from their published Go modules.

All of them are built from one module of ours, in one ``go build``: what they share (client-go, gRPC, OpenTelemetry) is
compiled once, which halves the time on two cores. The price is that a shared dependency can be newer than the
one a program was released with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from tests.cluster import cache, versions
from tests.cluster.host import architecture
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import mortal, run
from tests.cluster.screen import say, step

_SOURCES = Path(__file__).with_name("go")
_MODULE = "headrace.invalid/cluster"
_DOWNLOAD_TIMEOUT_S = 900
_BUILD_TIMEOUT_S = 3600
_REPORT_EVERY_S = 15.0

_KUBERNETES_PROGRAMS = (
    "kubeadm",
    "kubectl",
    "kubelet",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
)
_PACKAGES = {name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES_PROGRAMS} | {
    "kind": "sigs.k8s.io/kind",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "etcd": "go.etcd.io/etcd/server/v3",
    # Ours, in go/.
    "coredns": "./coredns",
    "crictl": "./crictl",
    "kindnet": "./kindnet",
    "pause": "./pause",
}
# What runs on the developer's machine; everything else runs on a node.
TOOLS = ("helm", "kind", "kubectl")
ALL = tuple(sorted(_PACKAGES))

_REQUIREMENTS = {
    "k8s.io/kubernetes": versions.KUBERNETES,
    "sigs.k8s.io/kind": versions.KIND,
    "helm.sh/helm/v3": versions.HELM,
    "go.etcd.io/etcd/server/v3": versions.ETCD,
    "github.com/coredns/coredns": versions.COREDNS,
}
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false -trimpath", "GOWORK": "off"}


def tools() -> Path:
    """The folder with kind, kubectl and helm alone, for a Docker that brings its own node image."""
    return _built("tools", TOOLS)


def all_programs() -> Path:
    """The folder with everything, for a node image of our own."""
    return _built("programs", ALL)


def kind_sources() -> Path:
    """kind's folder in Go's module cache, with the files that make a node out of a Debian."""
    answer = run(
        ["go", "mod", "download", "-json", f"sigs.k8s.io/kind@{versions.KIND}"],
        timeout_s=_DOWNLOAD_TIMEOUT_S,
        doing="fetching kind's sources",
    )
    return Path(json.loads(answer)["Dir"])


def staging_modules(kubernetes_go_mod: str) -> list[str]:
    """The modules that Kubernetes replaces by folders of its own repository, which its published module lacks."""
    return sorted(set(re.findall(r"=> \./staging/src/(\S+)", kubernetes_go_mod)))


def linker_flags() -> str:
    """Without these, Kubernetes calls itself v0.0.0 and helm v3.19."""
    major, minor, _ = versions.KUBERNETES.removeprefix("v").split(".")
    flags = ["-s", "-w", f"-X helm.sh/helm/v3/internal/version.version={versions.HELM}"]
    for module in ("k8s.io/component-base", "k8s.io/client-go"):
        for variable, text in (
            ("gitVersion", versions.KUBERNETES),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
            ("gitCommit", versions.KUBERNETES),
        ):
            flags.append(f"-X {module}/version.{variable}={text}")
    return " ".join(flags)


def all_programs_built() -> bool:
    """Whether ``all_programs`` is a matter of moments."""
    return cache.has("programs", _key(ALL))


def _key(programs: tuple[str, ...]) -> str:
    go_version = run(["go", "env", "GOVERSION"], timeout_s=60).strip()
    pins = " ".join(f"{module}@{version}" for module, version in _REQUIREMENTS.items())
    return cache.fingerprint(go_version, architecture(), pins, linker_flags(), " ".join(programs), _SOURCES)


def _built(entry: str, programs: tuple[str, ...]) -> Path:
    def build(scratch: Path) -> None:
        workspace = scratch / "workspace"
        with step(f"Fetching the sources of Kubernetes {versions.KUBERNETES}, kind, helm, etcd and CoreDNS"):
            _write_workspace(workspace)
            packages = [_PACKAGES[name] for name in programs]
            total = len(_go(workspace, "list", "-deps", *packages).splitlines())
        with step(f"Building {', '.join(programs)}"):
            _compile(workspace, scratch / "bin", packages, total)
        # Go names a program after its folder.
        if (server := scratch / "bin" / "server").exists():
            server.rename(scratch / "bin" / "etcd")
        missing = [name for name in programs if not (scratch / "bin" / name).exists()]
        if missing:
            raise ClusterProblem(f"go build ended well but did not make {', '.join(missing)}.")
        shutil.rmtree(workspace)

    return cache.ensure(entry, _key(programs), build) / "bin"


def _write_workspace(workspace: Path) -> None:
    shutil.copytree(_SOURCES, workspace)
    (workspace / "go.mod").write_text(f"module {_MODULE}\ngo {versions.GO}\n")
    answer = _go(workspace, "mod", "download", "-json", f"k8s.io/kubernetes@{versions.KUBERNETES}")
    modules = staging_modules(Path(json.loads(answer)["GoMod"]).read_text())
    replacements = [f"-replace={module}={module}@{versions.KUBERNETES_STAGING}" for module in modules]
    requirements = [f"-require={module}@{version}" for module, version in _REQUIREMENTS.items()]
    _go(workspace, "mod", "edit", *replacements, *requirements)


def _go(workspace: Path, *arguments: str) -> str:
    return run(
        ["go", *arguments],
        cwd=workspace,
        env=_ENVIRONMENT,
        timeout_s=_DOWNLOAD_TIMEOUT_S,
        doing=f"go {' '.join(arguments[:2])}",
    )


def _compile(workspace: Path, target: Path, packages: list[str], total: int) -> None:
    target.mkdir()
    command = ["go", "build", "-v", "-ldflags", linker_flags(), "-o", f"{target}/", *packages]
    with subprocess.Popen(
        mortal(command), cwd=workspace, env=os.environ | _ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        watchdog = threading.Timer(_BUILD_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            said = _follow(process.stderr, total)
        finally:
            watchdog.cancel()
    if process.returncode != 0:
        raise ClusterProblem(f"go build failed with status {process.returncode}:\n" + "".join(said)[-3000:])


def _follow(lines: Iterable[str], total: int) -> list[str]:
    """Report how far the compiler is; it writes the name of each package that was not in its cache."""
    said: list[str] = []
    reported_s = time.monotonic()
    for line in lines:
        said.append(line)
        if time.monotonic() - reported_s >= _REPORT_EVERY_S:
            say(f"  compiled {len(said)} packages, of at most {total}")
            reported_s = time.monotonic()
    return said
