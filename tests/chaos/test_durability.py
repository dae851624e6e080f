"""The short form of the durability matrix: one crash in every setup, and the promise of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.durability import BEGIN, END, SETUPS, Finding, Setup, measure, publish, table

pytestmark = pytest.mark.drill


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: f"{setup.name}, {setup.fault}".replace("`", ""))
async def test_a_crash_costs_no_more_than_is_promised(setup: Setup) -> None:
    finding = await measure(setup, crashes=1)
    print(f"\n{finding}")
    assert finding.confirmed > 20


def test_the_table_goes_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    publish(table([Finding("Sentinel", "kill -9", "all", 1, 1000, 2, 0.25, 0)]), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| Redis is run as")
    assert "| Sentinel | kill -9 | 1 | 1,000 | 2 | 0.25 s | all |" in text
    assert text.endswith(f"\n{END}\nafter\n")
    assert "old" not in text.split(END)[0].splitlines()


def test_a_page_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(SystemExit, match="add the lines"):
        publish("text", page)
    assert page.read_text() == "nothing here\n"
