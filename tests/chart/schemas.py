"""Schemas for kubeconform: Kubernetes' own, our CRDs' and the Prometheus operator's, all of them strict.

kubeconform usually downloads them. Here they are made of what the API server itself is built from, which is in Go's
module cache, so they are those of exactly this Kubernetes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.chart.helm import REPOSITORY, Document
from tests.chart.programs import PROMETHEUS_OPERATOR, module_folder
from tests.cluster import versions

Schema = dict[str, Any]

LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
_REFERENCE = "#/definitions/"
# What the API server takes for these, and its own description does not say.
_LOOSE = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["integer", "string"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["number", "string"]},
}


class Kind(NamedTuple):
    """What an object is, in three words."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, document: Document) -> Kind:
        group, _, version = document["apiVersion"].rpartition("/")
        return cls(group, version, document["kind"])

    @property
    def file(self) -> str:
        """As `LOCATION` has it."""
        first = f"-{self.group.partition('.')[0]}" if self.group else ""
        return f"{self.kind.lower()}{first}-{self.version}.json"


def write_schemas(folder: Path, documents: Iterable[Document]) -> None:
    """A schema for each kind that is known; kubeconform fails for the others."""
    wanted = {Kind.of(each) for each in documents}
    for schemas_of in (_of_kubernetes, _of_crds):
        for kind, schema in schemas_of(wanted):
            (folder / kind.file).write_text(json.dumps(schema))


# ── Kubernetes ───────────────────────────────────────────────────────────────────────────────────────


def _of_kubernetes(wanted: set[Kind]) -> Iterator[tuple[Kind, Schema]]:
    definitions = _definitions()
    strict = {name: _LOOSE.get(name) or strictly(schema) for name, schema in definitions.items()}
    for name, schema in definitions.items():
        for known in schema.get("x-kubernetes-group-version-kind", ()):
            if (kind := Kind(**known)) in wanted:
                needed = {each: strict[each] for each in _closure(name, strict)}
                yield kind, {"$ref": f"{_REFERENCE}{name}", "definitions": needed}


@functools.cache
def _definitions() -> dict[str, Schema]:
    folder = module_folder("k8s.io/kubernetes", versions.KUBERNETES)
    found: dict[str, Schema] = json.loads((folder / "api" / "openapi-spec" / "swagger.json").read_text())["definitions"]
    return found


def _closure(name: str, definitions: dict[str, Schema]) -> set[str]:
    """A definition and all that it refers to."""
    found: set[str] = set()
    open_ones = [name]
    while open_ones:
        if (current := open_ones.pop()) not in found:
            found.add(current)
            open_ones += _references(definitions[current])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(_REFERENCE)
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


# ── custom resources ─────────────────────────────────────────────────────────────────────────────────


class _Loader(yaml.SafeLoader):
    """Reads a plain ``=``, which one of the CRDs has, as the text that it is."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))


def _of_crds(wanted: set[Kind]) -> Iterator[tuple[Kind, Schema]]:
    prometheus = module_folder("github.com/prometheus-operator/prometheus-operator", PROMETHEUS_OPERATOR)
    folders = (REPOSITORY / "crds", prometheus / "example" / "prometheus-operator-crd")
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        text = path.read_text()
        # These files are long, and few of them are asked for.
        if not any(re.search(rf"^ +kind: {each.kind}$", text, re.MULTILINE) for each in wanted):
            continue
        spec = yaml.load(text, Loader=_Loader)["spec"]
        for version in spec["versions"]:
            if (kind := Kind(spec["group"], version["name"], spec["names"]["kind"])) in wanted:
                yield kind, custom_resource(version["schema"]["openAPIV3Schema"])


def custom_resource(schema: Schema) -> Schema:
    """The strict schema of a whole custom resource, whose CRD leaves out what all objects have."""
    common = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    found = strictly(schema)
    return {**found, "properties": {**found["properties"], **common, "metadata": {"type": "object"}}}


def strictly(schema: Schema) -> Schema:
    """The same schema, for which a key that is not described is a mistake."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {key: _within(key, value) for key, value in schema.items() if not key.startswith("x-")}
    open_ended = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and not open_ended:
        found["additionalProperties"] = False
    if schema.get("nullable"):
        found["type"] = [schema["type"], "null"]
    return found


def _within(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: strictly(each) for name, each in value.items()}
    if key in ("items", "additionalProperties", "not") and isinstance(value, dict):
        return strictly(value)
    return value
