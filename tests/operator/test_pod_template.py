"""A worker's template: what may stand in it is copied, and everything else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.reading import InvalidResource
from tests.operator.builders import FULL_TEMPLATE, pool


def test_a_template_is_copied_as_it_is():
    read = pool(template=FULL_TEMPLATE)
    assert read.template == FULL_TEMPLATE
    assert read.template["env"] is not FULL_TEMPLATE["env"]


def test_null_within_a_template_is_the_same_as_nothing():
    assert pool(template={"labels": None, "env": [{"name": "A", "value": None}]}).template == {"env": [{"name": "A"}]}


def _volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def _mount(**mount: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/data"} | mount]}


TEMPLATE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "hostNetwork: cannot be set on a worker; possible here: labels, annotations, "),
    ({"securityContext": {"privileged": True}}, "securityContext: cannot be set on a worker"),
    ({"containers": []}, "containers: cannot be set on a worker"),
    (_volume(hostPath={"path": "/"}), "volumes[0].hostPath: cannot be set on a worker"),
    (_volume(), "volumes[0]: must have exactly one of configMap, secret, emptyDir, persistentVolumeClaim"),
    (_volume(emptyDir={}, secret={"secretName": "s"}), "volumes[0]: must have exactly one of"),
    (_volume(secret={"secretName": "s", "namespace": "other"}), "volumes[0].secret.namespace: cannot be set on"),
    (_volume(secret={}), "volumes[0].secret.secretName: is missing"),
    (_volume(secret={"secretName": "s", "defaultMode": 512}), "volumes[0].secret.defaultMode: is 512"),
    (_volume(emptyDir={"sizeLimit": True}), "volumes[0].emptyDir.sizeLimit: must be a quantity such as 500m or 256Mi"),
    ({"volumes": [{"name": "headrace-tmp", "emptyDir": {}}]}, "volumes[0].name: headrace-tmp is the operator's"),
    ({"volumes": [{"name": "v", "emptyDir": {}}] * 2}, "volumes[1].name: 'v' appears twice; keep one"),
    ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volumeMounts[0].name: 'v' is none of the volumes"),
    (_mount(mountPath="data"), "volumeMounts[0].mountPath: 'data' is no place for a volume"),
    (_mount(mountPath="/"), "volumeMounts[0].mountPath: '/' is no place for a volume"),
    (_mount(mountPath="//tmp"), "volumeMounts[0].mountPath: '//tmp' is no place for a volume"),
    (_mount(mountPath="/data/../tmp"), "volumeMounts[0].mountPath: '/data/../tmp' is no place for a volume"),
    (_mount(mountPath="/tmp/"), "volumeMounts[0].mountPath: '/tmp/' is no place for a volume"),
    (_mount(mountPath="/tmp"), "volumeMounts[0].mountPath: '/tmp' is the operator's; mount it elsewhere"),
    (_mount(mountPath="/etc/headrace"), "volumeMounts[0].mountPath: '/etc/headrace' is the operator's"),
    (_mount(mountPath="/etc/headrace/redis-tls"), "volumeMounts[0].mountPath: '/etc/headrace/redis-tls' is the op"),
    (_mount(subPath="../other"), "volumeMounts[0].subPath: leaves the volume"),
    (_mount(subPath="/etc"), "volumeMounts[0].subPath: leaves the volume"),
    (_mount(mountPropagation="Bidirectional"), "volumeMounts[0].mountPropagation: cannot be set on a worker"),
    ({"env": [{"name": "HEADRACE_TENANT", "value": "x"}]}, "env[0].name: HEADRACE_TENANT is set by the operator"),
    ({"env": [{"name": "A=B"}]}, "env[0].name: 'A=B' cannot name a variable"),
    ({"env": [{"name": "A", "value": "a"}, {"name": "A"}]}, "env[1].name: 'A' appears twice; keep one"),
    ({"env": [{"name": "A", "value": 1}]}, "env[0].value: must be a string, not 1"),
    ({"env": [{"name": "A", "valueFrom": {}}]}, "env[0].valueFrom: must have exactly one of secretKeyRef"),
    (
        {"env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
        "env[0]: has both value and valueFrom; keep one",
    ),
    ({"envFrom": [{}]}, "envFrom[0]: must have exactly one of secretRef, configMapRef"),
    ({"labels": {"headrace.dev/pool": "other"}}, "labels.headrace.dev/pool: is set by the operator"),
    ({"labels": {"app.kubernetes.io/name": "x"}}, "labels.app.kubernetes.io/name: is set by the operator"),
    ({"labels": {"team": 1}}, "labels.team: must be a string, not 1"),
    (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"}},
        "annotations.controller.kubernetes.io/pod-deletion-cost: is set by the operator",
    ),
    ({"resources": {"claims": []}}, "resources.claims: cannot be set on a worker; possible here: requests, limits"),
    (
        {"resources": {"limits": {"cpu": []}}},
        "resources.limits.cpu: must be a quantity such as 500m or 256Mi, not a list",
    ),
    ({"priorityClassName": "system-node-critical"}, "priorityClassName: is for the cluster's own pods"),
    ({"serviceAccountName": "other:shop"}, "serviceAccountName: 'other:shop' is not a name that Kubernetes allows"),
    ({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "imagePullSecrets[1].name: 'a' appears twice; keep one"),
]


@pytest.mark.parametrize(
    ("template", "expected"), TEMPLATE_MISTAKES, ids=[expected[:60] for _, expected in TEMPLATE_MISTAKES]
)
def test_a_mistake_in_a_template_is_named_as_the_manifest_names_it(template, expected):
    with pytest.raises(InvalidResource) as caught:
        pool(template=template)
    assert str(caught.value).startswith(f"spec.template.{expected}")
