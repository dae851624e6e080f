"""``headrace``: the entry point.

A worker's pod runs this at every start, and its start-up time is what a queue that scales from zero waits for. So the
command line is parsed by the standard library, and what runs is imported only when the health port listens.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from headrace.model.errors import HeadraceError, InvalidInput

if TYPE_CHECKING:
    import asyncio


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors of ours are one sentence, not a traceback."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        options.run(options, rest)
    except InvalidInput as error:
        sys.exit(_say(error, 2))
    except HeadraceError as error:
        sys.exit(_say(error, 1))


def _say(error: HeadraceError, status: int) -> int:
    sys.stderr.write(f"headrace: {error}\n")
    return status


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace", description="Headrace: a Kubernetes-native priority task queue.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    worker = commands.add_parser(
        "worker",
        help="Run an app's tasks.",
        description="Run an app's tasks until SIGTERM or Ctrl-C; a second signal skips the grace period.",
        epilog="Example: headrace worker myproject.tasks:app --queue email --concurrency 20",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    _add_worker_arguments(worker)
    worker.set_defaults(run=partial(_without_rest, worker, _run_worker))
    # Its options are its own affair: reading them would mean importing it, which a worker has no use for.
    operator = commands.add_parser("operator", help="Run the Kubernetes operator.", add_help=False)
    operator.set_defaults(run=_run_operator)
    explain = commands.add_parser("explain", help="Say why a WorkerPool has as many pods as it has.", add_help=False)
    explain.set_defaults(run=_run_explain)
    return parser


def _without_rest(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], None],
    options: argparse.Namespace,
    rest: Sequence[str],
) -> None:
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    run(options)


def _add_worker_arguments(worker: argparse.ArgumentParser) -> None:
    add = worker.add_argument
    add("app", metavar="APP", help="where the app is, as module:attribute")
    add(
        "--queue",
        action="append",
        help="serve this queue; repeat for several; without it, all that the app's tasks name",
    )
    add("--concurrency", type=_number(int, 1), default=5, help="how many tasks run at once")
    add("--capability", action="append", help="what this worker can do, such as gpu; repeat for several")
    add(
        "--grace",
        type=_number(float, 0),
        default=30.0,
        help="seconds that running tasks get to finish after SIGTERM; then they are handed back",
    )
    add("--health-port", type=_number(int, 1, 65535), help="serve /livez, /readyz and /metrics on this port")
    add("--health-host", default="0.0.0.0", help="the address to serve them on")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="how much to log")
    add(
        "--log-style",
        choices=("auto", "json", "console"),
        default="auto",
        help="auto: console on a terminal, else json",
    )


def _number(kind: type[int] | type[float], smallest: int, largest: float = math.inf) -> Callable[[str], float]:
    """A parser of numbers within these bounds."""

    def parse(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = None
        # Asked in this way round, nan is refused too.
        if number is not None and smallest <= number <= largest:
            return number
        what = "a whole number" if kind is int else "a number"
        bounds = f"from {smallest} on" if largest == math.inf else f"from {smallest} to {largest}"
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} {bounds}")

    return parse


# ── worker ───────────────────────────────────────────────────────────────────────────────────────────


def _run_worker(options: argparse.Namespace) -> None:
    # Until the worker hears signals itself there is nothing to drain; and the first process of a container does not
    # die of a signal that nobody handles.
    signal.signal(signal.SIGTERM, _leave)
    from headrace.worker.health_port import listen

    listener = listen(options.health_host, options.health_port) if options.health_port else None
    # Now what takes longer than all the rest of the start; without the collector, which would look through it again
    # and again.
    gc.disable()
    import asyncio

    with _hidden("opentelemetry"):
        from headrace.cli.loading import load_app
        from headrace.observability.logs import adopt_logs_of, configure_logs
        from headrace.observability.otlp import begin_exporting
        from headrace.worker.worker import Worker

    configure_logs(options.log_level, options.log_style)
    exporting = None

    async def run() -> None:
        nonlocal exporting
        app = load_app(options.app)
        exporting = begin_exporting(os.environ, "headrace-worker")
        if exporting is not None:
            adopt_logs_of("opentelemetry", options.log_style)
        await Worker(
            app,
            queues=options.queue,
            concurrency=options.concurrency,
            capabilities=options.capability or (),
            grace_s=options.grace,
            health_listener=listener,
        ).run()

    _spare_the_collector()
    runner = asyncio.Runner(loop_factory=_loop_factory())
    runner.run(run())
    if exporting is not None:
        exporting.stop()
    # A handler that ignored its cancellation may still run, in a thread or in the loop. Its task has been
    # handed back, so neither the interpreter nor the runner shall wait for it to end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run_operator(_options: argparse.Namespace, rest: Sequence[str]) -> None:
    _need_operator("operator")
    from headrace_operator.main import main as run_operator

    run_operator(rest)


def _run_explain(_options: argparse.Namespace, rest: Sequence[str]) -> None:
    _need_operator("explain")
    from headrace_operator.explain import main as run_explain

    run_explain(rest)


def _need_operator(command: str) -> None:
    from importlib.util import find_spec

    if any(find_spec(package) is None for package in ("kopf", "kubernetes")):
        raise InvalidInput(command, "is not installed here; install it with: pip install 'headrace[operator]'")


def _leave(_number: int, _frame: object) -> NoReturn:
    sys.exit(0)


@contextlib.contextmanager
def _hidden(package: str) -> Iterator[None]:
    """As if it were not installed.

    The driver imports OpenTelemetry's metrics wherever it finds them, which takes a fifth of the time of all imports,
    and has no use for them unless it is asked to.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # an import of None fails, and that is said to be so
    try:
        yield
    finally:
        del sys.modules[package]


def _spare_the_collector() -> None:
    """Let Python look for reference cycles less often: by default it takes a third of the time of a short task.

    What has been imported stays to the end and is not looked through again, not even a first time: that would take
    longer than connecting to Redis, for some hundred objects. Tasks leave no cycles behind; those of handlers wait a
    little longer, by some tens of thousands of objects.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
