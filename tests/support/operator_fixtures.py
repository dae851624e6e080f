"""Fixtures for the operator in a cluster: the chart once per run, and the operator's words when a test fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.support import images
from tests.support.kubernetes import Namespace
from tests.support.kubernetes_fixtures import OPERATOR
from tests.support.one_run import Run
from tests.support.operator import NAMESPACE, Operator
from tests.support.volume import remove_volume, values_with_a_volume


@pytest.fixture(scope="session")
def cluster_wide_operator(cluster: Cluster, one_run: Run) -> Operator:
    """The operator for all namespaces, and the CRDs, as the chart installs them. Tests ask for ``operator``."""
    installed = Operator(Namespace(cluster, NAMESPACE), one_run.folder / "operator-notes.json")
    one_run.once(OPERATOR, lambda: _install(installed))
    return installed


def _install(operator: Operator) -> None:
    try:
        operator.remove()
        remove_volume(operator.namespace)
        operator.install(values_with_a_volume(operator.namespace))
        # Its first requests, before another process begins to read later ones.
        operator.read_logs()
    except (AssertionError, ClusterProblem) as error:
        for title, text in operator.report():
            error.add_note(f"--- {NAMESPACE}: {title}\n{text}")
        raise


@pytest.fixture(scope="session")
def prometheus_image(cluster: Cluster, one_run: Run) -> None:
    """The image of `tests.support.prometheus`, in the cluster."""
    one_run.once("prometheus-image", lambda: images.bring_prometheus(cluster))


@pytest.fixture
def operator(cluster_wide_operator: Operator) -> Iterator[Operator]:
    """The operator for all namespaces. What it asked the API server for is noted after each test."""
    yield cluster_wide_operator
    cluster_wide_operator.read_logs()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the operator said, and the custom resources, to the report of a failure."""
    report = yield
    if not report.failed or call.when == "teardown":
        return report
    # What a fixture asked for is among them as well, so the same operator may be there under two names.
    found: dict[str, object] = getattr(item, "funcargs", {})
    for operator in {id(value): value for value in found.values() if isinstance(value, Operator)}.values():
        title = f"operator in {operator.namespace.name}"
        report.sections += [(f"{title}: {what}", text) for what, text in operator.report()]
    for name, value in found.items():
        if not isinstance(value, Namespace):
            continue
        report.sections.append((f"namespace {value.name}: custom resources", _custom_resources(value)))
        if name != "namespace":  # that one is reported anyway
            report.sections += [(f"namespace {value.name}: {what}", text) for what, text in value.report()]
    return report


def _custom_resources(namespace: Namespace) -> str:
    try:
        return namespace.kubectl("get", "taskqueues,workerpools", "--output=yaml")
    except (ClusterProblem, OSError) as problem:
        return str(problem)
