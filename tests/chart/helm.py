"""Rendering the chart as its users do, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import versions
from tests.cluster.process import run

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "headrace"
VALUES = Path(__file__).with_name("values")

RELEASE, NAMESPACE = "headrace", "headrace-system"
MONITORING = "monitoring.coreos.com/v1"
_TIMEOUT_S = 120.0

Document = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    """One helm, and a chart that it renders."""

    program: Path
    chart: Path = CHART

    def lint(self, *values: Path) -> str:
        return self._run("lint", str(self.chart), "--strict", *self._usual(values))

    def template(
        self,
        *values: Path,
        sets: Mapping[str, str] | None = None,
        namespace: str = NAMESPACE,
        api_versions: Sequence[str] = (),
        release: str = RELEASE,
    ) -> list[Document]:
        """What would be installed. ``sets`` are texts of YAML by the path of their value."""
        return list(
            documents(self.text(*values, sets=sets, namespace=namespace, api_versions=api_versions, release=release))
        )

    def text(
        self,
        *values: Path,
        sets: Mapping[str, str] | None = None,
        namespace: str = NAMESPACE,
        api_versions: Sequence[str] = (),
        release: str = RELEASE,
    ) -> str:
        arguments = [f"--namespace={namespace}", *(f"--api-versions={each}" for each in api_versions)]
        arguments += [f"--set-json={path}={value}" for path, value in (sets or {}).items()]
        return self._run("template", release, str(self.chart), *self._usual(values), *arguments)

    def _usual(self, values: Sequence[Path]) -> list[str]:
        # A helm that was not released knows a Kubernetes of long ago.
        return [f"--kube-version={versions.KUBERNETES}", *(f"--values={each}" for each in values)]

    def _run(self, *arguments: str) -> str:
        return run([str(self.program), *arguments], timeout_s=_TIMEOUT_S, doing=f"helm {arguments[0]}")


def documents(text: str) -> Iterator[Document]:
    """The objects of a rendered chart, without what has become empty."""
    return (each for each in yaml.safe_load_all(text) if each)


def find(found: Iterable[Document], kind: str, name: str | None = None) -> Document:
    """The only object of this kind, or of this name."""
    (one,) = every(found, kind, name)
    return one


def every(found: Iterable[Document], kind: str, name: str | None = None) -> list[Document]:
    return [each for each in found if each["kind"] == kind and name in (None, each["metadata"]["name"])]
