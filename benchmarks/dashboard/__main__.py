"""``python -m benchmarks.dashboard --prometheus URL``: the dashboard with the figures of a Prometheus, as an SVG."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.dashboard.drawing import svg
from benchmarks.dashboard.panels import Span, panels
from benchmarks.dashboard.prometheus import Prometheus, PrometheusProblem

_REPOSITORY = Path(__file__).parents[2]
_DASHBOARD = _REPOSITORY / "charts" / "headrace" / "dashboards" / "headrace.json"
_PICTURE = _REPOSITORY / "docs" / "dashboard.svg"


def main() -> int:
    options = _parser().parse_args()
    end_s = time.time() if options.end is None else options.end
    span = Span(end_s - options.minutes * 60, end_s, options.scrape_interval)
    variables = {"namespace": ".*", "queue": ".*", "pool": ".*", **dict(options.variable)}
    dashboard = json.loads(options.dashboard.read_text())
    try:
        found = panels(dashboard, Prometheus(options.prometheus), span, variables)
    except (PrometheusProblem, KeyError, ValueError) as problem:
        print(problem.args[0], file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    options.output.write_text(svg(found, span, title=dashboard["title"]))
    empty = [panel.title for panel in found if panel.kind != "row" and not panel.lines]
    print(f"{options.output} is written; panels without data: {', '.join(empty) or 'none'}")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dashboard", description="Draw the dashboard with the figures of a Prometheus."
    )
    add = parser.add_argument
    add("--prometheus", metavar="URL", default="http://127.0.0.1:9090", help="whom to ask (default: %(default)s)")
    add("--dashboard", metavar="FILE", type=Path, default=_DASHBOARD, help="its JSON; by default the chart's")
    add("--output", metavar="FILE", type=Path, default=_PICTURE, help="the picture; by default docs/dashboard.svg")
    add("--minutes", metavar="N", type=float, default=60.0, help="how much time it shows (default: %(default)g)")
    add("--end", metavar="TIME", type=float, help="until when, in seconds since 1970; by default now")
    add(
        *("--scrape-interval", "-s"),
        metavar="SECONDS",
        type=float,
        default=30.0,
        help="how often that Prometheus reads its targets (default: %(default)g)",
    )
    add(
        "--variable",
        metavar="NAME=REGEX",
        type=_pair,
        action="append",
        default=[],
        help="a variable of the dashboard, such as pool=tasks; by default each is .*",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} has no '='; write NAME=REGEX")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
