"""The command line of the profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import publish
from benchmarks.profile import tables
from benchmarks.profile.measure import profile
from benchmarks.redis_server import private_server


def main() -> None:
    """Profile one drain, print it, and store it when asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, metavar="N", help="how many no-op tasks to drain")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    with private_server(appendonly=False) as server:
        figures = profile(server, tasks=options.tasks)
    sys.stdout.write(f"{tables.profile(figures)}\n\n{tables.functions(figures)}\n")
    if options.output:
        publish.write_json(figures, options.output)


if __name__ == "__main__":
    main()
