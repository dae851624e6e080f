"""The one error that ends a command with a sentence instead of a traceback."""

from __future__ import annotations


class ClusterProblem(Exception):
    """Something is missing or went wrong, and the message says what to do about it."""
