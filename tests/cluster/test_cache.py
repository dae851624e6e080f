"""Nothing half-written is ever used, and two builders do not meet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cluster import cache
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_an_entry_is_built_once():
    builds = []

    def build(scratch: Path) -> None:
        builds.append(scratch)
        (scratch / "file").write_text("whole")

    first = cache.ensure("thing", "k1", build)
    assert cache.ensure("thing", "k1", build) == first
    assert (first / "file").read_text() == "whole"
    assert len(builds) == 1
    assert cache.has("thing", "k1")


def test_another_key_is_another_entry():
    assert cache.ensure("thing", "k1", lambda _: None) != cache.ensure("thing", "k2", lambda _: None)


def test_a_build_that_fails_leaves_no_entry_and_the_next_one_starts_clean():
    def fail(scratch: Path) -> None:
        (scratch / "half").write_text("half")
        raise RuntimeError("no disk")

    with pytest.raises(RuntimeError, match="no disk"):
        cache.ensure("thing", "k1", fail)
    assert not cache.has("thing", "k1")

    place = cache.ensure("thing", "k1", lambda scratch: (scratch / "whole").touch())
    assert [path.name for path in place.iterdir()] == ["whole"]


def test_a_builder_that_is_killed_leaves_no_entry_and_no_lock():
    code = (
        "import time\n"
        "from tests.cluster import cache\n"
        "def build(scratch):\n"
        "    (scratch / 'half').touch()\n"
        "    print('building', flush=True)\n"
        "    time.sleep(600)\n"
        "cache.ensure('thing', 'k1', build)\n"
    )
    builder = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    assert builder.stdout.readline() == "building\n"
    os.kill(builder.pid, signal.SIGKILL)
    builder.communicate(timeout=30)

    assert not cache.has("thing", "k1")
    place = cache.ensure("thing", "k1", lambda scratch: (scratch / "whole").touch())
    assert [path.name for path in place.iterdir()] == ["whole"]


def test_the_second_builder_waits_for_the_first_and_takes_its_result():
    go_on = threading.Event()
    builds = []

    def build(scratch: Path) -> None:
        builds.append(threading.current_thread().name)
        assert go_on.wait(30)

    threads = [threading.Thread(target=cache.ensure, args=("thing", "k1", build)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: builds, 30, "nobody builds")
    go_on.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(builds) == 1


def test_the_fingerprint_changes_with_every_input(tmp_path):
    folder = tmp_path / "sources"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "main.go").write_text("one")
    seen = {cache.fingerprint("v1", folder)}

    seen.add(cache.fingerprint("v2", folder))
    (folder / "inner" / "main.go").write_text("two")
    seen.add(cache.fingerprint("v1", folder))
    (folder / "inner" / "main.go").rename(folder / "inner" / "other.go")
    seen.add(cache.fingerprint("v1", folder))
    seen.add(cache.fingerprint("v", "1", folder))

    assert len(seen) == 5
