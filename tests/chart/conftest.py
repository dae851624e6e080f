"""The chart's helms, and what they make of its defaults."""

from __future__ import annotations

import pytest

from tests.chart import programs
from tests.chart.helm import Document, Helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm 3, which most people have."""
    return Helm(programs.helm_3())


@pytest.fixture(scope="session")
def helm_4() -> Helm:
    return Helm(programs.helm_4())


@pytest.fixture(scope="session")
def defaults(helm: Helm) -> list[Document]:
    """What is installed when nothing is said."""
    return helm.template()
