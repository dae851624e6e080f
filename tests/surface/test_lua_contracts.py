"""Every script has its contract on top, and keeps to the rules that can be read off its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.queue import scripts
from headrace.queue.keys import FIXED

LUA = Path(scripts.__file__).with_name("lua")
NAMES = sorted(path.stem for path in LUA.glob("*.lua"))

GROWS_MEMORY = {"enqueue", "replay"}
"""Refused as a whole when Redis is out of memory. Everything else must still work then."""


@pytest.mark.parametrize("name", NAMES)
def test_a_script_documents_arguments_and_answers(name: str) -> None:
    header = (LUA / f"{name}.lua").read_text().split("--@include")[0]
    assert header.startswith("#!lua")
    assert f"-- {name}: " in header
    assert "-- ARGV[1]" in header
    assert "-- Answer" in header
    assert ("allow-oom" in header.splitlines()[0] or "no-writes" in header.splitlines()[0]) == (
        name not in GROWS_MEMORY
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_script_uses_no_randomness_of_its_own_and_no_undeclared_prefix(name: str) -> None:
    source = scripts.script(name).source.decode()
    assert "math.random" not in source
    assert "--@include" not in source
    assert "'hr:" not in source


def test_base_names_the_fixed_keys_in_their_order() -> None:
    base = (LUA / "lib" / "base.lua").read_text()
    declared = [
        word for line in base.splitlines() if "(KEYS" in line for word in line.split("=")[0].split() if "_key" in word
    ]
    assert [word.strip(",").removesuffix("_key") for word in declared] == list(FIXED)
