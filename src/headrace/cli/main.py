"""``headrace``: the entry point."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from headrace.cli.loading import load_app
from headrace.model.errors import HeadraceError, InvalidInput
from headrace.observability.logs import configure_logs

cli = typer.Typer(
    help="Headrace: a Kubernetes-native priority task queue.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@cli.callback()
def _group() -> None:
    """Headrace: a Kubernetes-native priority task queue."""


@cli.command(epilog="Example: headrace worker myproject.tasks:app --queue email --concurrency 20")
def worker(
    app: Annotated[str, typer.Argument(metavar="APP", help="Where the app is, as module:attribute.")],
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Serve this queue; repeat for several. Default: all that the app's tasks name."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many tasks run at once.")] = 5,
    capability: Annotated[
        list[str] | None, typer.Option(help="What this worker can do, such as gpu; repeat for several.")
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0, help="Seconds that running tasks get to finish after SIGTERM; then they are handed back."),
    ] = 30.0,
    health_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve /livez and /readyz on this port.")
    ] = None,
    health_host: Annotated[str, typer.Option(help="The address to serve them on.")] = "0.0.0.0",
    log_level: Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="How much to log.")] = "info",
    log_style: Annotated[
        Literal["auto", "json", "console"], typer.Option(help="auto: console on a terminal, else json.")
    ] = "auto",
) -> None:
    """Run an app's tasks until SIGTERM or Ctrl-C; a second signal skips the grace period."""
    configure_logs(log_level, log_style)
    from headrace.worker.worker import Worker

    async def run() -> None:
        await Worker(
            load_app(app),
            queues=queue or None,
            concurrency=concurrency,
            capabilities=capability or (),
            grace_s=grace,
            health_address=(health_host, health_port) if health_port else None,
        ).run()

    _spare_the_collector()
    runner = asyncio.Runner(loop_factory=_loop_factory())
    runner.run(run())
    # A handler that ignored its cancellation may still run, in a thread or in the loop. Its task has been
    # handed back, so neither the interpreter nor the runner shall wait for it to end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _spare_the_collector() -> None:
    """Let Python look for reference cycles less often: by default it takes a third of the time of a short task.

    What has been imported stays to the end and is not looked through again. Tasks leave no cycles behind; those of
    handlers wait a little longer, by some tens of thousands of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def main() -> None:
    """Run the command line; errors of ours are one sentence, not a traceback."""
    try:
        cli()
    except InvalidInput as error:
        typer.echo(f"headrace: {error}", err=True)
        sys.exit(2)
    except HeadraceError as error:
        typer.echo(f"headrace: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
