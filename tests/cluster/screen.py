"""Progress on the screen, each line with the seconds since the command began.

Standard output is left to what others read (``env``, ``base-image``), so progress goes to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_began_s = time.monotonic()


def say(sentence: str) -> None:
    print(f"[{time.monotonic() - _began_s:5.0f} s] {sentence}", file=sys.stderr, flush=True)


@contextmanager
def step(doing: str) -> Iterator[None]:
    """Say what begins, and how long it took."""
    say(f"{doing} …")
    began_s = time.monotonic()
    yield
    say(f"{doing}: done in {time.monotonic() - began_s:.0f} s.")
