"""Fixtures for tests in a cluster: the cluster once per run with our images in it, a namespace for each test.

The cluster is taken down at the end of the run, unless it stood before or ``HEADRACE_KEEP_CLUSTER`` is set.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator

import pytest

from tests.cluster import lifecycle
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.support import images
from tests.support.kubernetes import Namespace

CLUSTER = "headrace-e2e"
# Two nodes for pods beside the control plane, so that pods and their Redis are on different ones.
NODES = 3
KEEP_CLUSTER = "HEADRACE_KEEP_CLUSTER"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster that holds our images."""
    stood_before = _stands()
    try:
        found = lifecycle.up(CLUSTER, nodes=NODES)
        # Whoever names a cluster of their own brings the images there, too.
        if found.provider != "named":
            images.build(CLUSTER)
            images.load(CLUSTER)
        yield found
    finally:
        if not stood_before and not os.environ.get(KEEP_CLUSTER):
            lifecycle.down(CLUSTER)


def _stands() -> bool:
    try:
        return lifecycle.standing(CLUSTER).kubeconfig.exists()
    except ClusterProblem:
        return False


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace of the test's own. What happened in it is in the report if the test fails."""
    made = Namespace(cluster, f"test-{secrets.token_hex(4)}")
    made.create()
    try:
        yield made
    finally:
        made.delete()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what happened in a test's namespace to the report of its failure, before the namespace goes."""
    report = yield
    found = getattr(item, "funcargs", {}).get("namespace")
    if report.failed and call.when != "teardown" and isinstance(found, Namespace):
        report.sections += [(f"namespace {found.name}: {title}", text) for title, text in found.report()]
    return report
