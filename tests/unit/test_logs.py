"""What is logged: JSON in one line each, and nothing that must not be in a log."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging, structlog
from headrace.observability.logs import configure_foreign_logs, configure_logs
configure_logs("info", "json")
configure_foreign_logs("warning", "json")
def connect(password):
    raise ValueError("refused")
for log in (structlog.get_logger(), logging.getLogger("some.library")):
    try:
        connect("a-" + "secret")
    except ValueError:
        log.exception("it did not work")
logging.getLogger("some.library").info("not worth telling")
"""


def test_errors_of_ours_and_of_libraries_are_told_with_their_way_but_without_their_variables() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("it did not work", "error")] * 2
    for line in lines:
        (error,) = line["exception"]
        assert (error["exc_type"], error["exc_value"]) == ("ValueError", "refused")
        assert [frame["name"] for frame in error["frames"]][-1] == "connect"
    assert "a-secret" not in run.stderr
