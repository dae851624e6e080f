"""``headrace worker`` with a sampler: every few milliseconds of processor time, where this process is.

The samples are taken by `faulthandler` inside the signal handler itself, not by Python code that would run at the
next bytecode: time spent in C counts for the function that called it, and the event loop's own time for the loop. A
handler of Python's own would count the time of the loop and of garbage collection for whichever function comes next.

The price: now and then a signal finds a frame half made, and the process crashes. Whoever starts it tries again.
"""

from __future__ import annotations

import faulthandler
import gc
import signal
import sys
import time
from collections.abc import Callable
from typing import IO, Literal

from benchmarks.profile.samples import COLLECTED
from headrace.cli.main import main

EVERY_S = 0.004
"""One tick of most kernels. A sample takes some tens of microseconds, so this slows the worker by about 1 %."""


def run() -> None:
    """The first argument is the file of the samples; the others are those of ``headrace``."""
    with open(sys.argv.pop(1), "wb", buffering=0) as samples:
        faulthandler.register(signal.SIGPROF, file=samples, all_threads=False)
        gc.callbacks.append(_timed_collections(samples))
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        main()


def _timed_collections(samples: IO[bytes]) -> Callable[[Literal["start", "stop"], dict[str, int]], None]:
    """Garbage collection strikes whoever allocates, so that its time hides in other functions': told apart here."""
    started_ns = 0

    def on_collection(phase: Literal["start", "stop"], _: dict[str, int]) -> None:
        nonlocal started_ns
        if phase == "start":
            started_ns = time.thread_time_ns()
        else:
            samples.write(b"%s%d\n" % (COLLECTED, time.thread_time_ns() - started_ns))

    return on_collection


if __name__ == "__main__":
    run()
