"""`headrace explain workerpool` in a cluster: what it tells of a pool, and what when it may not or cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from headrace_operator.explain import Unanswered, _refuse
from headrace_operator.kube import ApiProblem
from headrace_operator.scaling import decide
from headrace_operator.status import decision_status
from tests.cluster.lifecycle import Cluster
from tests.operator.builders import level_load, pool_figures, queue_load
from tests.operator.manifest_cases import workerpool
from tests.support.kubernetes import Namespace
from tests.support.operator import Operator, wait_for_condition


def explain(cluster_config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "explain", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"KUBECONFIG": str(cluster_config)},
    )


def test_a_cluster_without_our_resources():
    """The tests' own cluster has them, and others may be at work there."""
    with pytest.raises(Unanswered, match="has no WorkerPools; install the CRDs with: kubectl apply --server-side"):
        _refuse(ApiProblem(404, "list", "the server could not find the requested resource"), "shop", "https://c")


def test_an_answer_that_nobody_expected():
    with pytest.raises(Unanswered, match="the API server at https://c says: etcdserver: request timed out"):
        _refuse(ApiProblem(500, "get", "etcdserver: request timed out"), "shop", "https://c")


@pytest.mark.cluster
@pytest.mark.slow
class TestInACluster:
    @pytest.fixture
    def stored(self, namespace: Namespace, operator: Operator) -> Namespace:
        """A pool with a decision. The operator has none for it, as its queue is missing, and leaves this one alone."""
        namespace.apply(workerpool("orders"))
        wait_for_condition(namespace, "workerpool", "orders", "Ready", "False", reason="QueueMissing")
        decision = decide(pool_figures(queue_load(level_load(waiting=100)), replicas=1))
        status = decision_status(None, decision, datetime(2030, 1, 31, tzinfo=UTC)) | {"desiredReplicas": 5}
        patch = f"--patch={json.dumps({'status': status})}"
        namespace.kubectl("patch", "workerpool", "orders", "--subresource=status", "--type=merge", patch)
        return namespace

    def test_a_pool_is_explained(self, cluster: Cluster, stored: Namespace):
        done = explain(cluster.kubeconfig, "workerpool", "orders", "--namespace", stored.name)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"WorkerPool {stored.name}/orders: there shall be 5 pods" in done.stdout
        assert "from 1 to 5 workers (Backlog)." in done.stdout
        assert "100 waiting x 10 s / (10 s + 30 s)" in done.stdout
        done = explain(cluster.kubeconfig, "wp", "orders", "-n", stored.name, "--json")
        assert json.loads(done.stdout)["formula"]["need"] == 5

    def test_a_pool_that_does_not_exist(self, cluster: Cluster, stored: Namespace):
        done = explain(cluster.kubeconfig, "workerpool", "order", "--namespace", stored.name)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"headrace: NAME: there is no WorkerPool 'order' in namespace '{stored.name}'; "
            "those that exist there are orders\n"
        )
        done = explain(cluster.kubeconfig, "workerpool", "order", "--namespace", "nowhere")
        assert done.stderr == (
            "headrace: NAME: there is no WorkerPool 'order' in namespace 'nowhere', nor any other; "
            "name the namespace with --namespace\n"
        )

    def test_the_namespace_of_the_context_is_meant_and_rights_are_needed(
        self, cluster: Cluster, stored: Namespace, tmp_path: Path
    ):
        """Two contexts of the same cluster: one of a service account without rights, one of nobody."""
        stored.kubectl("create", "serviceaccount", "stranger")
        token = stored.kubectl("create", "token", "stranger").strip()
        whole = yaml.safe_load(cluster.kubeconfig.read_text())
        (known,) = whole["contexts"]
        own = known["context"] | {"namespace": stored.name}
        whole["contexts"] = [
            {"name": "own", "context": own},
            {"name": "stranger", "context": own | {"user": "stranger"}},
            {"name": "nobody", "context": own | {"user": "nobody"}},
        ]
        whole["users"] += [
            {"name": "stranger", "user": {"token": token}},
            {"name": "nobody", "user": {"token": "no-such-token"}},
        ]
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(whole))
        done = explain(path, "workerpool", "orders", "--context", "own")
        assert (done.returncode, done.stderr) == (0, "")
        done = explain(path, "workerpool", "orders", "--context", "stranger")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(
            f"headrace: you may not read WorkerPools in namespace '{stored.name}'; ask for the right to get and list "
        )
        done = explain(path, "workerpool", "orders", "--context", "nobody")
        assert (done.returncode, done.stdout) == (1, "")
        assert "does not know you; log in again, or name another --context" in done.stderr
