"""A volume for the chart's Redis, in a cluster that has no storage class, as those of `tests.cluster` may be."""

from __future__ import annotations

import json
import secrets
from typing import Any

from tests.cluster.process import run
from tests.support.kubernetes import Namespace

CLAIM = "data-headrace-redis-0"
"""The claim of the chart's Redis, in a release that is called `headrace`."""
_CLASS = "headrace-test"
_TIMEOUT_S = 60.0


def values_with_a_volume(namespace: Namespace) -> dict[str, Any]:
    """What to tell the chart so that its Redis in this namespace has a volume; an empty one is made for it.

    A cluster with a default storage class makes one by itself.
    """
    if _has_default_class(namespace):
        return {"redis": {"persistence": {"enabled": True}}}
    node = _node_for_pods(namespace)
    folder = f"/var/lib/headrace-test/{secrets.token_hex(4)}"
    make = f"mkdir -p {folder} && chmod 0777 {folder}"
    run(["docker", "exec", node, "sh", "-c", make], timeout_s=_TIMEOUT_S, env=namespace.cluster.environment())
    namespace.apply(json.dumps(_volume(f"headrace-{secrets.token_hex(4)}", namespace, node, folder)))
    return {"redis": {"persistence": {"enabled": True, "storageClass": _CLASS}}}


def remove_volume(namespace: Namespace) -> None:
    """Remove the claim that a release has left, and the volume that was made for it."""
    namespace.kubectl("delete", f"pvc/{CLAIM}", "--ignore-not-found")
    namespace.kubectl("delete", "pv", f"--selector=headrace.dev/for={namespace.name}")


def _has_default_class(namespace: Namespace) -> bool:
    is_default = "storageclass.kubernetes.io/is-default-class"
    items = json.loads(namespace.kubectl("get", "storageclasses", "--output=json"))["items"]
    return any(each["metadata"].get("annotations", {}).get(is_default) == "true" for each in items)


def _node_for_pods(namespace: Namespace) -> str:
    items = json.loads(namespace.kubectl("get", "nodes", "--output=json"))["items"]
    free = [each["metadata"]["name"] for each in items if not each["spec"].get("taints")]
    return str(free[0])


def _volume(name: str, namespace: Namespace, node: str, folder: str) -> dict[str, Any]:
    on_the_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"headrace.dev/for": namespace.name}},
        "spec": {
            "storageClassName": _CLASS,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace.name, "name": CLAIM},
            "hostPath": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_the_node]}]}},
        },
    }
