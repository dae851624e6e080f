"""The no-op and the probe."""

from benchmarks.peers.programs import answer_probe


def noop(payload: str) -> None:
    """Nothing."""


def probe(payload: str) -> None:
    """Tell when it started."""
    answer_probe(payload)
