"""The rules of the Pod Security level `restricted`, for pods that exist on paper only.

They are written in https://kubernetes.io/docs/concepts/security/pod-security-standards/. A test on a cluster lets the
API server itself judge; this one judges all sets of values in a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.chart.helm import Document

Pod = dict[str, Any]

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
_PROFILES = ("RuntimeDefault", "Localhost")


def pods(found: Iterable[Document]) -> Iterator[tuple[str, Pod]]:
    """The pod specs of all objects that have one, each with a name for messages."""
    for each in found:
        name = f"{each['kind']} {each['metadata']['name']}"
        if each["kind"] == "Pod":
            yield name, each["spec"]
        elif "template" in each.get("spec", {}) and "containers" in each["spec"]["template"].get("spec", {}):
            yield name, each["spec"]["template"]["spec"]


def violations(pod: Pod) -> list[str]:
    """What the level would not let in, each as a sentence; none is what it should be."""
    return [*_of_the_pod(pod), *(problem for each in _containers(pod) for problem in _of_a_container(each, pod))]


def _of_the_pod(pod: Pod) -> Iterator[str]:
    for field in _HOST_FIELDS:
        if pod.get(field):
            yield f"{field} is set"
    for volume in pod.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES:
            yield f"the volume {volume['name']} is a {', '.join(sorted(kinds))}"
    security = pod.get("securityContext", {})
    for field in ("windowsOptions", "sysctls"):
        if field in security:
            yield f"{field} is set"
    if security.get("runAsUser") == 0:
        yield "the pod runs as root"
    if security.get("seLinuxOptions"):
        yield "seLinuxOptions is set"


def _containers(pod: Pod) -> Iterator[dict[str, Any]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(field, [])


def _of_a_container(container: dict[str, Any], pod: Pod) -> Iterator[str]:
    name = f"the container {container['name']}"
    own, common = container.get("securityContext", {}), pod.get("securityContext", {})
    if own.get("privileged"):
        yield f"{name} is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name} allows to gain privileges"
    if own.get("runAsNonRoot", common.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if own.get("runAsUser") == 0:
        yield f"{name} runs as root"
    profile = own.get("seccompProfile", common.get("seccompProfile", {})).get("type")
    if profile not in _PROFILES:
        yield f"{name} has no seccomp profile"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"{name} keeps capabilities"
    if not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield f"{name} adds capabilities"
    if own.get("procMount", "Default") != "Default":
        yield f"{name} has another procMount"
    if any("hostPort" in port and port["hostPort"] for port in container.get("ports", [])):
        yield f"{name} has a port of the host"
