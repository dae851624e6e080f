"""What a worker's template may contain.

A template is copied field by field. What has no place here cannot come into a pod, whatever was stored; so, unlike
elsewhere in a manifest, fields that are not known are refused. What the operator itself puts into a pod is in
`manifests`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from posixpath import normpath
from typing import Any, Final

from .reading import InvalidResource, Part, is_moderate, object_name, shown

OWN_VOLUMES: Final = ("headrace-tmp", "headrace-redis-tls")

_VARIABLE: Final = re.compile(r"[A-Za-z._-][A-Za-z0-9._-]*")

_Reader = Callable[[Part, str], Any]
_Shape = Mapping[str, _Reader]

_text: Final = Part.text
_required_text: Final = Part.required_text
_flag: Final = Part.flag
_QUANTITY: Final = ((str, int, float), "a quantity such as 500m or 256Mi")


def _mode(part: Part, key: str) -> int | None:
    return part.whole(key, 0, 0o777)


def _toleration_seconds(part: Part, key: str) -> int | None:
    return part.whole(key, 0, 1 << 59)


def _quantity(part: Part, key: str) -> str | int | float | None:
    """Text such as 500m; a plain number is as good."""
    quantity: str | int | float | None = _of_kind(part, key, *_QUANTITY) if key in part else None
    return quantity


def _quantities(part: Part, key: str) -> dict[str, str | int | float] | None:
    return _mapping(part, key, *_QUANTITY)


def _texts(part: Part, key: str) -> dict[str, str] | None:
    return _mapping(part, key, (str,), "a string")


def _mapping(part: Part, key: str, kinds: tuple[type, ...], what: str) -> dict[str, Any] | None:
    if key not in part:
        return None
    inner = part.part(key)
    return {name: _of_kind(inner, name, kinds, what) for name in inner}


def _of_kind(part: Part, key: str, kinds: tuple[type, ...], what: str) -> Any:
    value = part.value(key)
    is_wild_number = isinstance(value, (int, float)) and (isinstance(value, bool) or not is_moderate(value))
    if not isinstance(value, kinds) or is_wild_number:
        raise InvalidResource(part.at(key), f"must be {what}, not {shown(value)}")
    return value


def _object(shape: _Shape, *, one_of: Sequence[str] = ()) -> _Reader:
    def read(part: Part, key: str) -> dict[str, Any] | None:
        return _shaped(part.part(key), shape, one_of) if key in part else None

    return read


def _list(shape: _Shape, *, one_of: Sequence[str] = ()) -> _Reader:
    def read(part: Part, key: str) -> list[dict[str, Any]] | None:
        parts = part.parts(key)
        return None if parts is None else [_shaped(item, shape, one_of) for item in parts]

    return read


def _shaped(part: Part, shape: _Shape, one_of: Sequence[str] = ()) -> dict[str, Any]:
    for key in part:
        if key not in shape:
            raise InvalidResource(part.at(key), f"cannot be set on a worker; possible here: {', '.join(shape)}")
    given = [key for key in one_of if key in part]
    if one_of and len(given) != 1:
        raise InvalidResource(part.path, f"must have exactly one of {', '.join(one_of)}")
    read = {key: reader(part, key) for key, reader in shape.items()}
    return {key: value for key, value in read.items() if value is not None}


_NAME: Final[_Shape] = {"name": _required_text}
_KEY: Final[_Shape] = {**_NAME, "key": _required_text, "optional": _flag}
_VARIABLE_SOURCES: Final[_Shape] = {
    "secretKeyRef": _object(_KEY),
    "configMapKeyRef": _object(_KEY),
    "fieldRef": _object({"fieldPath": _required_text}),
}
_VOLUME_SOURCES: Final[_Shape] = {
    "configMap": _object({**_NAME, "optional": _flag, "defaultMode": _mode}),
    "secret": _object({"secretName": _required_text, "optional": _flag, "defaultMode": _mode}),
    "emptyDir": _object({"medium": _text, "sizeLimit": _quantity}),
    "persistentVolumeClaim": _object({"claimName": _required_text, "readOnly": _flag}),
}
_ENV_FROM_SOURCES: Final[_Shape] = {"secretRef": _object(_NAME), "configMapRef": _object(_NAME)}
_TEMPLATE: Final[_Shape] = {
    "labels": _texts,
    "annotations": _texts,
    "resources": _object({"requests": _quantities, "limits": _quantities}),
    "env": _list({**_NAME, "value": _text, "valueFrom": _object(_VARIABLE_SOURCES, one_of=tuple(_VARIABLE_SOURCES))}),
    "envFrom": _list(_ENV_FROM_SOURCES, one_of=tuple(_ENV_FROM_SOURCES)),
    "nodeSelector": _texts,
    "tolerations": _list(
        {"key": _text, "operator": _text, "value": _text, "effect": _text, "tolerationSeconds": _toleration_seconds}
    ),
    "priorityClassName": _text,
    "imagePullSecrets": _list(_NAME),
    "serviceAccountName": _text,
    "volumes": _list({**_NAME, **_VOLUME_SOURCES}, one_of=tuple(_VOLUME_SOURCES)),
    "volumeMounts": _list({**_NAME, "mountPath": _required_text, "readOnly": _flag, "subPath": _text}),
}

_OWN_LABELS: Final = ("headrace.dev/", "app.kubernetes.io/", "kubernetes.io/")
_OWN_PREFIXES: Final = {
    "labels": _OWN_LABELS,
    # Which pods go first is the scaler's decision, and it says so in an annotation.
    "annotations": (*_OWN_LABELS, "controller.kubernetes.io/", "container.apparmor.security.beta.kubernetes.io/"),
}


def read_template(part: Part) -> dict[str, Any]:
    """A copy of ``spec.template`` that can be put into a pod."""
    template = _shaped(part, _TEMPLATE)
    for kind, prefixes in _OWN_PREFIXES.items():
        for name in template.get(kind, ()):
            if name.startswith(prefixes):
                raise InvalidResource(f"{part.at(kind)}.{name}", "is set by the operator; choose a prefix of your own")
    _check_variables(part.at("env"), template.get("env", []))
    _refuse_twice_by(part.at("imagePullSecrets"), template.get("imagePullSecrets", []), "name")
    _check_volumes(part, template.get("volumes", []), template.get("volumeMounts", []))
    for key in ("serviceAccountName", "priorityClassName"):
        if key in template:
            object_name(part.at(key), template[key])
    if template.get("priorityClassName", "").startswith("system-"):
        raise InvalidResource(part.at("priorityClassName"), "is for the cluster's own pods; name one made for workers")
    return template


def _check_variables(where: str, variables: Sequence[Mapping[str, Any]]) -> None:
    for index, variable in enumerate(variables):
        name = variable["name"]
        if not _VARIABLE.fullmatch(name):
            raise InvalidResource(
                f"{where}[{index}].name", f"{shown(name)} cannot name a variable; use A-Z, 0-9 and '_'"
            )
        if name.startswith("HEADRACE_"):
            raise InvalidResource(f"{where}[{index}].name", f"{name} is set by the operator; choose another name")
        if "value" in variable and "valueFrom" in variable:
            raise InvalidResource(f"{where}[{index}]", "has both value and valueFrom; keep one")
    _refuse_twice_by(where, variables, "name")


def _check_volumes(part: Part, volumes: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]]) -> None:
    _refuse_twice_by(part.at("volumes"), volumes, "name")
    names = [volume["name"] for volume in volumes]
    for index, name in enumerate(names):
        if name in OWN_VOLUMES:
            raise InvalidResource(
                f"{part.at('volumes')}[{index}].name", f"{name} is the operator's; choose another name"
            )
    for index, mount in enumerate(mounts):
        where = f"{part.at('volumeMounts')}[{index}]"
        path = mount["mountPath"]
        if mount["name"] not in names:
            raise InvalidResource(f"{where}.name", f"{shown(mount['name'])} is none of the volumes; add it to them")
        if not path.startswith("/") or ":" in path or normpath(path) != path or path.startswith("//") or path == "/":
            raise InvalidResource(f"{where}.mountPath", f"{shown(path)} is no place for a volume; write it as in /data")
        if normpath(path) == "/tmp" or f"{normpath(path)}/".startswith("/etc/headrace/"):
            raise InvalidResource(f"{where}.mountPath", f"{shown(path)} is the operator's; mount it elsewhere")
        if ".." in mount.get("subPath", "").split("/") or mount.get("subPath", "").startswith("/"):
            raise InvalidResource(f"{where}.subPath", "leaves the volume; write a path below its root")
    _refuse_twice_by(part.at("volumeMounts"), mounts, "mountPath")


def _refuse_twice_by(where: str, items: Sequence[Mapping[str, Any]], key: str) -> None:
    # Server-side apply merges these lists by that key, and refuses the whole object otherwise.
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item[key] in seen:
            raise InvalidResource(f"{where}[{index}].{key}", f"{shown(item[key])} appears twice; keep one")
        seen.add(item[key])
