"""The Lua files, put together with the parts they share.

A line ``--@include NAME`` in a script is replaced by ``lua/lib/NAME.lua``. Redis has no include of its own,
and a rule that is written twice is a rule that will differ.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources

from .transport import Script

_INCLUDE = re.compile(r"^ *--@include (\w+)$", re.MULTILINE)


@functools.cache
def script(name: str) -> Script:
    """The script ``lua/NAME.lua``, ready to be sent."""
    return assemble(name, _read(f"{name}.lua"))


def assemble(name: str, text: str) -> Script:
    """A script from its text, with the includes resolved."""
    source = _INCLUDE.sub(lambda found: _read(f"lib/{found[1]}.lua"), text).encode()
    return Script(name=name, source=source, sha=hashlib.sha1(source, usedforsecurity=False).hexdigest())


def _read(path: str) -> str:
    return resources.files("headrace.queue").joinpath("lua", path).read_text(encoding="utf-8")
