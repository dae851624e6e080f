"""Fixtures for every test: shared servers, and a tenant of its own for each test.

The shared servers are never flushed. Each test works under a fresh tenant name instead, so tests cannot see
each other's keys and no test destroys what another one (or a parallel run) relies on.

A test that asks for ``any_redis`` or ``frozen_redis``, directly or through another fixture, runs once on each
kind of installation that ``--topology`` names; one that asks for ``redis_server`` is about a single server.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import hypothesis
import pytest

from tests.support.redis_server import RedisServer
from tests.support.topology import TOPOLOGIES, Installation, Topology, installed

pytest_plugins = [
    "tests.support.one_run",
    "tests.support.kubernetes_fixtures",
    "tests.support.operator_fixtures",
    "tests.support.order",
]

# How long an example takes says more about the machine's other work than about ours.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--topology",
        choices=(*TOPOLOGIES, "all"),
        default="standalone",
        help="the kind of Redis installation on which the tests of queue, app and worker run",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "topology" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--topology")
        metafunc.parametrize("topology", TOPOLOGIES if wanted == "all" else (wanted,), scope="session", indirect=True)


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Topology:
    """The kind of installation that this test runs on."""
    kind: Topology = request.param
    return kind


@pytest.fixture(scope="session")
def any_redis(topology: Topology) -> Iterator[Installation]:
    """An installation on the host's clock. Do not break it: tests that do start their own."""
    with installed(topology) as servers:
        yield servers


@pytest.fixture(scope="session")
def frozen_redis(topology: Topology) -> Iterator[Installation]:
    """An installation whose clock stands still, exact to the µs, until ``frozen_redis.clock.advance(seconds)``."""
    with installed(topology, frozen=True) as servers:
        yield servers


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A plain server on the host's clock. Do not stop it: tests that break a server start their own."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def frozen_server() -> Iterator[RedisServer]:
    """A single server of the module's own whose clock stands still, whatever ``--topology`` says."""
    with RedisServer(fake_clock=True) as server:
        server.clock.freeze()
        yield server


@pytest.fixture
def tenant() -> str:
    """A tenant nobody else has."""
    return f"t-{secrets.token_hex(8)}"
