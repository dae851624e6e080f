"""Bring a cluster up, install the chart, send a burst of tasks, watch, sum up, and take all of it down again."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from rich.console import Console

from headrace import HeadraceError
from tests.cluster.problem import ClusterProblem
from tests.cluster.screen import say

from . import burst, view
from .ground import Ground

CLUSTER = "headrace-demo"
TASKS = 600
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; 0 when every task was completed and no pod is left."""
    options = _parser().parse_args(arguments)
    ground = Ground(options.name, burst.NAME)
    signal.signal(signal.SIGTERM, _interrupt)
    is_good = False
    try:
        is_good = _demonstrate(Console(), ground, options.tasks)
    except (ClusterProblem, HeadraceError) as problem:
        print(f"demo: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        say("Interrupted.")
        return _INTERRUPTED
    finally:
        # A second Ctrl-C must not leave half of it behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if options.keep:
            print(ground.how_to_look_around())
        elif not _taken_down(ground):
            is_good = False
    return 0 if is_good else 1


def _taken_down(ground: Ground) -> bool:
    try:
        ground.take_down()
    except ClusterProblem as problem:
        print(f"demo: not all of it could be taken down: {problem}", file=sys.stderr)
        return False
    return True


def _demonstrate(console: Console, ground: Ground, tasks: int) -> bool:
    namespace, release = ground.bring_up()
    release.connect(namespace)
    with release.redis_forwarded() as url:
        outcome = burst.run(namespace, url, tasks, console)
    console.print(view.summary(outcome))
    if not outcome.is_good:
        print(
            f"demo: not all tasks were completed and all pods gone within {burst.PATIENCE_S:g} s. `make demo KEEP=1` "
            "leaves everything in place to look at.",
            file=sys.stderr,
        )
    return outcome.is_good


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Show Headrace on a Kubernetes cluster of its own: a burst of tasks, workers from none to none.",
        epilog="Example: make demo KEEP=1    (keeps the cluster, and says how to look around)",
    )
    parser.add_argument("--name", default=CLUSTER, help="the cluster's name (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=TASKS, help="how many tasks (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave all of it in place at the end")
    return parser


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for a build that another thread still does. The kernel ends its programs with us instead.
    os._exit(status)
