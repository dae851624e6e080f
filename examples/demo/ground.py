"""What the demonstration stands on: a cluster with our images, the chart in it, and a namespace. All of it goes again.

What was there before stays: a cluster that stood, or a release in it.
"""

from __future__ import annotations

import shutil

from tests.cluster import lifecycle
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.cluster.screen import say, step
from tests.support import images
from tests.support.chart import Release
from tests.support.kubernetes import Namespace

SYSTEM = "headrace-system"
_DELETION_TIMEOUT_S = 180.0


class Ground:
    """Brings up what is missing, and knows what that was."""

    def __init__(self, cluster_name: str, namespace_name: str) -> None:
        self._cluster_name = cluster_name
        self._namespace_name = namespace_name
        self._brought_cluster = False
        self._release: Release | None = None
        self._namespace: Namespace | None = None

    # ── up ───────────────────────────────────────────────────────────────────────────────────────────

    def bring_up(self) -> tuple[Namespace, Release]:
        """The namespace for the demonstration, and the release whose operator looks after it."""
        cluster = self._cluster()
        namespace = Namespace(cluster, self._namespace_name)
        self._remove(namespace)  # what an earlier demonstration has left there
        self._namespace = namespace
        namespace.create()
        return namespace, self._installed(cluster)

    def _cluster(self) -> Cluster:
        # Noted first: one that is half made has to go, too.
        self._brought_cluster = not self._stands()
        cluster = lifecycle.up(self._cluster_name)
        if cluster.provider == "named":
            if shutil.which("helm") is None:
                raise ClusterProblem("helm, which installs the chart, is missing: please install it.")
            say(f"The nodes of this cluster have to have the images: {', '.join(images.ALL)}.")
        else:
            images.build(self._cluster_name)
            images.load(self._cluster_name)
        return cluster

    def _stands(self) -> bool:
        try:
            return lifecycle.standing(self._cluster_name).kubeconfig.exists()
        except ClusterProblem:
            return False

    def _installed(self, cluster: Cluster) -> Release:
        release = Release(Namespace(cluster, SYSTEM))
        if not release.is_there():
            self._release = release
            with step("Installing the chart: helm install headrace charts/headrace --wait"):
                release.install()
        elif cluster.provider == "named":
            say(f"Headrace is installed there already, in the namespace {SYSTEM}, and is used as it is.")
        else:
            with step("Bringing the chart up to date: helm upgrade headrace charts/headrace --wait"):
                release.upgrade()
        return release

    # ── down ─────────────────────────────────────────────────────────────────────────────────────────

    def take_down(self) -> None:
        """Remove what `bring_up` has brought, however far it came."""
        if self._brought_cluster:
            with step(f"Taking the cluster {self._cluster_name} down"):
                lifecycle.down(self._cluster_name)
            return
        if self._namespace is not None:
            with step(f"Removing the namespace {self._namespace.name}"):
                self._remove(self._namespace)
        if self._release is not None and self._release.is_there():
            with step("Uninstalling the chart"):
                self._release.uninstall()
            say(f"The CRDs and the namespace {SYSTEM} stay: they may hold what others have made.")
        say(f"The cluster {self._cluster_name} stood before, and stays.")

    def _remove(self, namespace: Namespace) -> None:
        wait = f"--timeout={_DELETION_TIMEOUT_S:g}s"
        namespace.kubectl(
            *("delete", "namespace", namespace.name, "--ignore-not-found", wait), timeout_s=_DELETION_TIMEOUT_S + 30
        )

    def how_to_look_around(self) -> str:
        """What to type when all of it is kept."""
        namespace = self._namespace_name
        return f"""\
All of it stays. To look around:
  eval "$(.venv/bin/python -m tests.cluster env --name {self._cluster_name})"
  kubectl --namespace {namespace} get taskqueues,workerpools,pods
  .venv/bin/headrace explain workerpool demo --namespace {namespace}
  kubectl --namespace {SYSTEM} get pods
and to take it down: make cluster-down NAME={self._cluster_name}"""
