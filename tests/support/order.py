"""In which order the tests are handed out to the processes of a run (pytest-xdist with ``--dist loadgroup``).

A run is over when its longest line of tests is, so what takes long begins early and what takes moments fills the gaps
at the end. The longest line is the test cluster's: it is asked for at once, then used by all processes, and then by the
tests that disturb others on it, one after the other in a single process, while the other processes do what needs no
cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.kubernetes_fixtures import is_disruptive, shares_the_cluster
from tests.support.one_run import RUN, Run, begins_here

_DISRUPTIVE = "disruptive"
_GROUPS = "groups.json"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    yield  # First pytest leaves out what is not wanted, and brings those together that share a server.
    items.sort(key=_place)
    # The first that uses the cluster is the very first, and brings it up while other processes run what comes before.
    first = next((number for number, item in enumerate(items) if shares_the_cluster(item)), None)
    if first is not None:
        items.insert(0, items.pop(first))
    if not begins_here(config):
        _tell_groups(config.stash[RUN], items)


def _place(item: pytest.Item) -> int:
    """Tests of the same place stay as they were collected: neighbours share servers."""
    if item.get_closest_marker("drill") is not None:
        return 0  # mostly waits, which goes well with a cluster that is being made
    if is_disruptive(item):
        return 3
    if shares_the_cluster(item):
        return 1 if "operator" in item.fixturenames else 2  # type: ignore[attr-defined]
    if item.get_closest_marker("cluster") is not None:
        return 4
    return 5 if item.get_closest_marker("slow") is not None else 6


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────


def _group_of(item: pytest.Item) -> str | None:
    if is_disruptive(item):
        return _DISRUPTIVE
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark is not None else None


def _tell_groups(run: Run, items: list[pytest.Item]) -> None:
    """Write down which tests belong together. All processes find the same, so it does not matter who is the last."""
    groups = {item.nodeid: group for item in items if (group := _group_of(item))}
    with run.locked(_GROUPS):
        (run.folder / _GROUPS).write_text(json.dumps(groups))


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Hands tests out in their order, and those of a group to the same process.

    It is what ``--dist loadgroup`` says. pytest-xdist 3.8 itself tells groups by a suffix of the tests' names, which
    pytest 9.2 does not let it add, and then silently has no groups (its issue 1386).
    """

    groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self.groups is None:
            self.groups = json.loads((self.config.stash[RUN].folder / _GROUPS).read_text())
        return self.groups.get(nodeid, nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    return Groups(config, log) if config.getoption("dist") == "loadgroup" else None
