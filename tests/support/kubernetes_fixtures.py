"""Fixtures for tests in a cluster: the cluster once per run with our images in it, a namespace for each test.

Several processes share the cluster. The first that needs it brings it up, and it is taken down at the end of the run,
unless it stood before or ``HEADRACE_KEEP_CLUSTER`` is set. A test that is marked ``disruptive`` has it to itself.
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
from tests.support.one_run import RUN, Run, begins_here
from tests.support.operator import NAMESPACE as OPERATOR_NAMESPACE
from tests.support.operator import Operator

TEST_CLUSTER = "HEADRACE_TEST_CLUSTER"
CLUSTER = os.environ.get(TEST_CLUSTER) or "headrace-e2e"
# Two nodes for pods beside the control plane, so that pods and their Redis are on different ones.
NODES = 3
KEEP_CLUSTER = "HEADRACE_KEEP_CLUSTER"
BRINGING_UP = "cluster"
OPERATOR = "operator"
_TO_TAKE_DOWN = "cluster-to-take-down"


@pytest.fixture(scope="session")
def cluster(one_run: Run) -> Cluster:
    """A cluster that holds our images."""
    one_run.once(BRINGING_UP, lambda: _bring_up(one_run))
    return lifecycle.standing(CLUSTER)


def _bring_up(run: Run) -> None:
    if not _stands() and not os.environ.get(KEEP_CLUSTER):
        # Noted first: one that is half made has to go, too.
        (run.folder / _TO_TAKE_DOWN).touch()
    found = lifecycle.up(CLUSTER, nodes=NODES)
    # Whoever names a cluster of their own brings the images there, too.
    if found.provider != "named":
        images.build(CLUSTER)
        images.load(CLUSTER)


def _stands() -> bool:
    try:
        return lifecycle.standing(CLUSTER).kubeconfig.exists()
    except ClusterProblem:
        return False


def pytest_configure(config: pytest.Config) -> None:
    if begins_here(config):
        # When all processes of the run have ended, however they did.
        config.add_cleanup(lambda: _take_down(config.stash[RUN]))


def _take_down(run: Run) -> None:
    if (run.folder / _TO_TAKE_DOWN).exists():
        lifecycle.down(CLUSTER)
    elif (run.folder / OPERATOR).exists():
        # In a cluster that is kept, nobody shall act on what other tests do.
        Operator(Namespace(lifecycle.standing(CLUSTER), OPERATOR_NAMESPACE)).remove()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace of the test's own. What happened in it is in the report if the test fails."""
    made = Namespace(cluster, f"test-{secrets.token_hex(4)}")
    made.create()
    try:
        yield made
    finally:
        made.delete()


# ── several processes ────────────────────────────────────────────────────────────────────────────────


def shares_the_cluster(item: pytest.Item) -> bool:
    return "cluster" in getattr(item, "fixturenames", ())


def is_disruptive(item: pytest.Item) -> bool:
    return item.get_closest_marker("disruptive") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that disturbs others wait until they are done, and them until it is."""
    if not shares_the_cluster(item):
        return (yield)
    with item.config.stash[RUN].turn(alone=is_disruptive(item)):
        return (yield)


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
