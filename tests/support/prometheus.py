"""A Prometheus in a test cluster: it reads every operator and every worker there, and evaluates the chart's rules.

Other tests use the cluster at the same time, so whoever asks it for something says in which namespace.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.dashboard.prometheus import Prometheus
from tests.support import alert_rules, images
from tests.support.kubernetes import CONDITION_TIMEOUT_S, Namespace
from tests.support.operator import OPERATOR_PODS, apply, wait_for

NAME, PORT = "prometheus", 9090
INTERVAL = "1s"

_CONFIG, _RULES = "prometheus.yml", "headrace.yaml"
_FOLDER, _DATA = "/etc/prometheus", "/data"
_TARGETS = f"{_DATA}/targets.json"
_JOBS = {"operator": OPERATOR_PODS, "workers": "headrace.dev/pool"}
_SHOWN_S = 3600

Alert = tuple[str, str]
"""The name of an alert, and the queue or the pool that it is about."""


class Watcher:
    """What a Prometheus knows about one namespace."""

    def __init__(self, prometheus: Prometheus, namespace: str) -> None:
        self.prometheus = prometheus
        self.namespace = namespace

    def firing(self) -> set[Alert]:
        """The alerts that fire now."""
        of_here = [alert for alert in self.prometheus.alerts() if alert["labels"].get("namespace") == self.namespace]
        return {_named(alert["labels"]) for alert in of_here if alert["state"] == "firing"}

    def fired(self) -> set[Alert]:
        """The alerts that have fired since the beginning, also those that are over."""
        query = f'count_over_time(ALERTS{{namespace="{self.namespace}", alertstate="firing"}}[{_SHOWN_S}s])'
        return {_named(series.labels) for series in self.prometheus.now(query)}

    def wait_until_fired(self, *alerts: Alert, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
        """Until each of these has fired, for however short a time."""
        wait_for(lambda: set(alerts) <= self.fired(), f"not all of {sorted(alerts)} have fired", timeout_s)

    def wait_until_resolved(self, *alerts: Alert, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
        """Until none of these fires any more."""
        wait_for(lambda: not set(alerts) & self.firing(), f"not all of {sorted(alerts)} have resolved", timeout_s)

    def wait_until_reading(self, targets: int, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
        """Until this namespace's workers, so many, and a leading operator are read."""
        workers = f'sum(up{{job="workers", namespace="{self.namespace}"}}) >= {targets}'
        for query in (workers, "headrace_operator_leader == 1"):
            wait_for(lambda query=query: self.prometheus.now(query), f"Prometheus has no {query}", timeout_s)  # type: ignore[misc]


@contextlib.contextmanager
def watching(namespace: Namespace, values: Mapping[str, Any]) -> Iterator[Watcher]:
    """A Prometheus in this namespace, with the rules of an installation with these values."""
    account = f"{NAME}-{namespace.name}"
    apply(namespace, *_rights(namespace.name, account), _configuration(values), _deployment())
    try:
        namespace.wait_for_rollout(NAME)
        with namespace.forwarded(f"deployment/{NAME}", PORT) as port:
            yield Watcher(Prometheus(f"http://127.0.0.1:{port}"), namespace.name)
    finally:
        # These do not go with the namespace.
        namespace.kubectl("delete", f"clusterrolebinding/{account}", f"clusterrole/{account}", "--ignore-not-found")


def _named(labels: Mapping[str, str]) -> Alert:
    return labels["alertname"], labels.get("queue") or labels.get("pool") or ""


# ── manifests ────────────────────────────────────────────────────────────────────────────────────────


def _scraping() -> dict[str, Any]:
    """Every operator and every worker of the cluster. Their own labels win."""
    found = {"files": [_TARGETS], "refresh_interval": INTERVAL}
    return {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [f"{_FOLDER}/{_RULES}"],
        "scrape_configs": [{"job_name": "headrace", "honor_labels": True, "file_sd_configs": [found]}],
    }


def _configuration(values: Mapping[str, Any]) -> dict[str, Any]:
    files = {_CONFIG: json.dumps(_scraping(), indent=2), _RULES: alert_rules.rendered(values)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": files}


def _rights(namespace: str, account: str) -> Iterator[dict[str, Any]]:
    """An account that may see pods, wherever they are."""
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    yield {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": account}, "rules": [rule]}
    yield {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _deployment() -> dict[str, Any]:
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                **_container(NAME),
                "args": [f"--config.file={_FOLDER}/{_CONFIG}", f"--storage.tsdb.path={_DATA}/tsdb"],
                "ports": [{"name": "http", "containerPort": PORT}],
                "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "http"}, "periodSeconds": 1},
            },
            {
                **_container("targets"),
                "command": ["python3", "/usr/local/lib/find_targets.py"],
                "args": [_TARGETS, *(f"{job}:{selector}" for job, selector in _JOBS.items())],
            },
        ],
        "volumes": [{"name": "configuration", "configMap": {"name": NAME}}, {"name": "data", "emptyDir": {}}],
    }
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": spec}


def _container(name: str) -> dict[str, Any]:
    """What the two containers of the pod have in common."""
    return {
        "name": name,
        "image": images.PROMETHEUS,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "configuration", "mountPath": _FOLDER}, {"name": "data", "mountPath": _DATA}],
    }
