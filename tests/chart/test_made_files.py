"""What the chart holds twice is as `make generate` makes it, and the tool that makes it sees mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tools.chart.__main__ import CHART, REPOSITORY, differences, write
from tools.chart.readme import readme_text
from tools.chart.schema import schema_text
from tools.chart.values import BadValues, leaves, read

VALUES = """
# -- What all names begin with.
name: ""
# A group needs no words of its own.
operator:
  # -- How many there are,
  # at any time.
  # @schema {minimum: 1}
  replicas: 2
  # -- Labels.
  # @schema {open: string}
  labels: {}
  # -- Whether it is there.
  # @schema {switch: true}
  enabled: auto
  # -- Only so many.
  # @schema {type: [integer, "null"]}
  most: null
"""


def test_the_made_files_are_those_in_the_repository():
    assert differences() == []


def test_a_change_to_a_crd_or_a_value_is_noticed_and_written(tmp_path: Path):
    shutil.copytree(REPOSITORY / CHART, tmp_path / CHART)
    shutil.copytree(REPOSITORY / "crds", tmp_path / "crds")
    assert differences(tmp_path) == []
    for path in (tmp_path / "crds" / "taskqueues.yaml", tmp_path / CHART / "values.yaml"):
        path.write_text(path.read_text() + "# -- More.\nmore: 1\n")
    (tmp_path / CHART / "files" / "crds" / "stray.yaml").write_text("")
    found = differences(tmp_path)
    assert [Path(path).name for path in found] == ["README.md", "stray.yaml", "taskqueues.yaml", "values.schema.json"]
    assert write(tmp_path) == found
    assert differences(tmp_path) == []


def test_values_become_a_schema_that_knows_no_other_key():
    schema = json.loads(schema_text(read(VALUES)))
    assert schema["additionalProperties"] is False
    operator = schema["properties"]["operator"]
    assert operator["additionalProperties"] is False
    assert operator["properties"] == {
        "replicas": {"description": "How many there are, at any time.", "type": "integer", "minimum": 1},
        "labels": {"description": "Labels.", "type": "object", "additionalProperties": {"type": "string"}},
        "enabled": {"description": "Whether it is there.", "enum": ["auto", True, False]},
        "most": {"description": "Only so many.", "type": ["integer", "null"]},
    }


def test_values_become_tables():
    text = readme_text("# Title\n\n<!-- values -->\n", read(VALUES))
    assert "| `operator.replicas` | `2` | How many there are, at any time. |" in text
    assert [value.path for value in leaves(read(VALUES))] == [
        "name",
        "operator.replicas",
        "operator.labels",
        "operator.enabled",
        "operator.most",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\n", "name has no description"),
        ("# -- A list.\nnames: []\n", "names is a list: say of what"),
        ("# -- Anything.\nlabels: {}\n", "labels is empty: say what may be in it"),
        ("# -- Nothing.\nmost: null\n", "most has no default: say its type"),
        ("# -- Bad.\n# @schema [1]\nname: x\n", "name: @schema must be an object"),
        ("# -- Bad.\n# @schema {a: }}\nname: x\n", "name: @schema is not YAML"),
        ("[]\n", "is not an object"),
    ],
)
def test_what_is_missing_is_told(text: str, said: str):
    with pytest.raises(BadValues, match=said):
        schema_text(read(text))
