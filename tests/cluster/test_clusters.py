"""Real clusters: they stand side by side, span several nodes, survive interruptions and leave nothing behind.

The names are always the same, so that their image stores stay warm and the disk does not fill.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import lifecycle
from tests.cluster.lifecycle import Cluster
from tests.cluster.places import Places
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run
from tests.cluster.traces import machine_wide, traces
from tests.support.kubernetes_fixtures import BRINGING_UP, TEST_CLUSTER
from tests.support.one_run import Run
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    # In one process: the names are the same for all, and so are the three nodes.
    pytest.mark.xdist_group("clusters"),
    pytest.mark.skipif(lifecycle.NAMED_CLUSTER in os.environ, reason="the cluster is the user's own"),
]

REPOSITORY = Path(__file__).parents[2]
# Two checkouts of one machine that test at the same time have names of their own.
PREFIX = os.environ.get(TEST_CLUSTER) or "headrace-test"
FIRST, SECOND = f"{PREFIX}-1", f"{PREFIX}-2"
NODES = 3
READY_TIMEOUT_S = 300.0
SERVE = "python3 -m http.server 8000"
ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    lifecycle.down(FIRST)
    try:
        yield lifecycle.up(FIRST, nodes=NODES)
    finally:
        lifecycle.down(FIRST)


@pytest.fixture
def second_name() -> Iterator[str]:
    lifecycle.down(SECOND)
    try:
        yield SECOND
    finally:
        lifecycle.down(SECOND)


def kubectl(cluster: Cluster, *arguments: str, stdin: str | None = None) -> str:
    return run(["kubectl", *arguments], timeout_s=READY_TIMEOUT_S, env=cluster.environment(), stdin=stdin)


def node_names(cluster: Cluster) -> list[str]:
    return sorted(kubectl(cluster, "get", "nodes", "--output=jsonpath={.items[*].metadata.name}").split())


def ready_nodes(cluster: Cluster) -> int:
    conditions = kubectl(
        cluster, "get", "nodes", "--output=jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    )
    return conditions.split().count("True")


def run_pod(cluster: Cluster, name: str, node: str, image: str) -> str:
    """A pod on that node that serves HTTP; its address is returned."""
    manifest = f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: {name}, labels: {{app: {name}}}}}
        spec:
          nodeName: {node}
          terminationGracePeriodSeconds: 0
          containers:
          - name: main
            image: {image}
            imagePullPolicy: IfNotPresent
            command: [sh, -c, "{SERVE}"]
            readinessProbe: {{httpGet: {{port: 8000}}, periodSeconds: 1}}
    """
    kubectl(cluster, "apply", "--filename=-", stdin=manifest)
    kubectl(cluster, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    return kubectl(cluster, "get", "pod", name, "--output=jsonpath={.status.podIP}")


def asks(cluster: Cluster, pod: str, url: str) -> str:
    return kubectl(cluster, "exec", pod, "--", "python3", "-c", ASK, url).strip()


# ── several nodes ────────────────────────────────────────────────────────────────────────────────────


def test_pods_on_different_nodes_reach_each_other_and_a_stopped_node_comes_back(three_nodes):
    assert node_names(three_nodes) == [f"{FIRST}-control-plane", f"{FIRST}-worker", f"{FIRST}-worker2"]
    workers = node_names(three_nodes)[1:]
    image = lifecycle.base_image(FIRST)
    env = three_nodes.environment()
    run(["kind", "load", "docker-image", image, f"--nodes={','.join(workers)}"], timeout_s=READY_TIMEOUT_S, env=env)

    addresses = {name: run_pod(three_nodes, name, node, image) for name, node in zip(("a", "b"), workers, strict=True)}
    kubectl(three_nodes, "expose", "pod", "b", "--port=80", "--target-port=8000")
    assert asks(three_nodes, "a", f"http://{addresses['b']}:8000") == "200"
    assert asks(three_nodes, "b", f"http://{addresses['a']}:8000") == "200"
    # The same by name: through the service's address, which CoreDNS tells and kube-proxy leads to the other node. It
    # takes a moment until every node knows a new service.
    by_name = reached(three_nodes, "a", "http://b.default.svc.cluster.local")
    wait_until(by_name, READY_TIMEOUT_S, "the service was not reached by its name")

    run(["docker", "stop", workers[1]], timeout_s=60, env=env)
    wait_until(lambda: ready_nodes(three_nodes) == NODES - 1, READY_TIMEOUT_S, "the stopped node stayed Ready")
    run(["docker", "start", workers[1]], timeout_s=60, env=env)
    wait_until(lambda: ready_nodes(three_nodes) == NODES, READY_TIMEOUT_S, "the node did not come back")
    wait_until(by_name, READY_TIMEOUT_S, "the pod on it did not come back")


def reached(cluster: Cluster, pod: str, url: str) -> Callable[[], bool]:
    def answered() -> bool:
        try:
            return asks(cluster, pod, url) == "200"
        except ClusterProblem:
            return False

    return answered


# ── side by side ─────────────────────────────────────────────────────────────────────────────────────


def test_two_clusters_stand_side_by_side_and_one_goes_without_the_other(three_nodes, second_name):
    second = lifecycle.up(second_name)
    assert node_names(second) == [f"{SECOND}-control-plane"]
    assert len(node_names(three_nodes)) == NODES

    kubectl(second, "create", "namespace", "only-here")
    assert "only-here" not in kubectl(three_nodes, "get", "namespaces")

    lifecycle.down(second_name)
    assert ready_nodes(three_nodes) == NODES
    kubectl(three_nodes, "--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")


# ── nothing left ─────────────────────────────────────────────────────────────────────────────────────


def begin(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "up", "--name", name],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_when(process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    """SIGKILL, which leaves a program no time to tidy up."""

    def reached() -> object:
        assert process.poll() is None, "the bring-up ended before it could be interrupted"
        return condition()

    try:
        wait_until(reached, READY_TIMEOUT_S, "the moment to interrupt did not come")
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def private_only(second_name) -> Places:
    if lifecycle.chosen_provider() != "private":
        pytest.skip("with the Docker that runs, all of this is Docker's and kind's own")
    return Places(second_name)


@pytest.fixture
def nobody_else(one_run: Run) -> Iterator[None]:
    """No other process of this run brings a cluster up meanwhile."""
    with one_run.locked(BRINGING_UP):
        yield


def test_an_interrupted_bring_up_is_picked_up_and_afterwards_nothing_is_left(private_only, nobody_else):
    places = private_only
    before = machine_wide()
    assert traces(places).total() == 0

    # Before dockerd answers.
    kill_when(begin(places.name), lambda: traces(places).processes)
    # While kind creates the node.
    kill_when(begin(places.name), lambda: any("/sbin/init" in line for line in traces(places).processes))

    lifecycle.up(places.name)
    during, machine_during = traces(places), machine_wide()
    for kind, things in vars(during).items():
        assert things, f"no {kind} were found, so their absence would prove nothing"

    lifecycle.down(places.name)
    assert traces(places).total() == 0, traces(places)
    after = machine_wide()
    for kind, things in after.items():
        assert not (machine_during[kind] - before[kind]) & things, f"{kind} were left behind"


def test_nothing_is_left_of_a_bring_up_that_nobody_picked_up(private_only):
    places = private_only
    kill_when(begin(places.name), lambda: any("kube-apiserver" in line for line in traces(places).processes))
    assert traces(places).total() > 0

    lifecycle.down(places.name)

    assert traces(places).total() == 0, traces(places)
    assert not places.kubeconfig.exists()


def test_nothing_is_left_even_if_dockerd_hangs(private_only):
    places = private_only
    lifecycle.docker_up(places.name)
    dockerd = next(line.split()[0] for line in traces(places).processes if line.split()[1] == "dockerd")
    os.kill(int(dockerd), signal.SIGSTOP)  # It answers no more, and takes no SIGTERM.

    lifecycle.down(places.name)

    assert traces(places).total() == 0, traces(places)
