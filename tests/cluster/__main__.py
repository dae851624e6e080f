"""The commands behind ``make cluster`` and ``make cluster-down``."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from tests.cluster import lifecycle
from tests.cluster.problem import ClusterProblem
from tests.cluster.screen import say

DEFAULT_NAME = "headrace"
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.run(options)
    except ClusterProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on from here; `make cluster-down` cleans up.", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="Kubernetes clusters for the tests of Headrace, by kind."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name, help=summary, description=summary, epilog=f"Example: python -m tests.cluster {example}"
        )
        added.add_argument("--name", default=DEFAULT_NAME, help="the cluster's name (default: %(default)s)")
        return added

    up = command("up", "Bring a cluster up, or find the one that stands.", "up --name mine --nodes 3")
    up.add_argument("--nodes", type=int, default=1, help="how many nodes (default: %(default)s)")
    up.add_argument("--docker-only", action="store_true", help="start the private dockerd alone, to build images with")
    up.set_defaults(run=_up)
    down = command("down", "Take a cluster down and leave nothing but the cache.", "down --name mine")
    down.set_defaults(run=lambda options: lifecycle.down(options.name))
    env = command(
        "env",
        "Print the shell commands that point docker, kind, kubectl and helm to a cluster.",
        'env --name mine    (use it as: eval "$(python -m tests.cluster env --name mine)")',
    )
    env.set_defaults(run=_env)
    base_image = command(
        "base-image",
        "Give a private dockerd the Python base image, and print the image's name.",
        "base-image --name mine",
    )
    base_image.set_defaults(run=lambda options: print(lifecycle.base_image(options.name)))
    return parser


def _up(options: argparse.Namespace) -> None:
    if options.docker_only:
        lifecycle.docker_up(options.name)
        say("dockerd is ready.")
    else:
        lifecycle.up(options.name, options.nodes)
        say(f"The cluster {options.name} is ready.")
    say(f'To use it: eval "$(python -m tests.cluster env --name {options.name})"')


def _env(options: argparse.Namespace) -> None:
    for name, value in lifecycle.standing(options.name).environment().items():
        print(f"export {name}={shlex.quote(value)}")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for a build that another thread still does. The kernel ends its programs with us instead.
    os._exit(status)
