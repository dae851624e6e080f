"""A wall clock for one redis-server that tests move by hand, made with libfaketime.

What works (checked against redis-server 7.0.15 and libfaketime 0.9.10, 10,000 random steps of 1 µs to 1000 s):

* ``TIME``, ``TIME`` inside a script, key expiry and the time-out of blocking commands all follow this clock.
* A step is visible to the very next command: libfaketime reads the offset file at every call, and the file
  is replaced by a rename, so the server never sees half a number.
* Frozen, ``TIME`` is exact to the microsecond and stands still between steps. A ``BLPOP`` time-out does not
  pass on its own then; it passes when the clock is advanced beyond it (or a push arrives).
* Running, the clock is the host's plus an offset, and blocking time-outs take real time.

The server's monotonic clock stays real, so its event loop and background work go on as usual. Client-side
time-outs (socket timeouts, ``asyncio.sleep``) are real time as well: only the server is fooled.

The clock only moves forward. Servers that are shared by a whole test session stay sound that way.
"""

from __future__ import annotations

import glob
import os
import time
from pathlib import Path

_LIBFAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"
_LIBFAKETIME_FOR_THREADS = "/usr/lib/*/faketime/libfaketimeMT.so.1"
_LIBC = "/lib/*/libc.so.6"


class ServerClock:
    """The clock of one server; ``offset_us`` is how far it is ahead of the host while running."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self._offset_us = 0
        self._frozen_us: int | None = None
        self._write()

    @property
    def frozen(self) -> bool:
        return self._frozen_us is not None

    @property
    def now_us(self) -> int:
        """What the server's ``TIME`` says, in µs; exact when frozen."""
        return time.time_ns() // 1000 + self._offset_us if self._frozen_us is None else self._frozen_us

    def advance(self, seconds: float) -> None:
        """Move the clock forward; the next command already sees it."""
        self.advance_us(round(seconds * 1_000_000))

    def advance_us(self, step_us: int) -> None:
        if step_us < 0:
            raise ValueError("the clock of a server only moves forward")
        if self._frozen_us is None:
            self._offset_us += step_us
        else:
            self._frozen_us += step_us
        self._write()

    def freeze(self) -> None:
        """Stop the clock where it is: from now on it moves by ``advance`` only."""
        self._frozen_us = self.now_us
        self._write()

    def resume(self) -> None:
        """Let a frozen clock run on from where it stands."""
        if self._frozen_us is not None:
            self._offset_us = self._frozen_us - time.time_ns() // 1000
            self._frozen_us = None
            self._write()

    def environment(self) -> dict[str, str]:
        """The variables that put a process under this clock."""
        # libc is preloaded too so that its malloc wins over jemalloc's: jemalloc asks for the time while it
        # starts, libfaketime allocates while it answers the first such call, and the two never get going.
        return {
            "LD_PRELOAD": f"{_library(_LIBFAKETIME)}:{_library(_LIBC)}",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FMT": "%s",
            "TZ": "UTC",
        }

    def _write(self) -> None:
        if self._frozen_us is None:
            text = f"{self._offset_us / 1_000_000:+.6f}"
        else:
            whole_s, rest_us = divmod(self._frozen_us, 1_000_000)
            # libfaketime reads the fraction as a float and cuts it off: the extra half microsecond keeps
            # 1001 µs from turning into 1000 µs.
            text = f"{whole_s}.{rest_us:06d}5"
        replacement = self._file.with_suffix(".next")
        replacement.write_text(text + "\n")
        os.replace(replacement, self._file)


def shifted_clock(offset_s: int) -> dict[str, str]:
    """The variables that put a process under a wall clock which is off by ``offset_s``; its monotonic one stays."""
    return {
        "LD_PRELOAD": _library(_LIBFAKETIME_FOR_THREADS),
        "FAKETIME": f"{offset_s:+d}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Else it moves the deadlines of waits on the monotonic clock too. Python's own lock waits like that, and
        # threads then stand still for seconds: long enough to lose a lease.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def _library(pattern: str) -> str:
    found = sorted(glob.glob(pattern))
    if not found:
        raise RuntimeError(f"{pattern} not found: install libfaketime (Debian: apt-get install libfaketime)")
    return found[0]
