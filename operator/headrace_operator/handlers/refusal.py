"""Why an object cannot be made true: what its condition says."""

from __future__ import annotations


class Refusal(Exception):
    """Raised while reconciling; ``reason`` and ``message`` become a condition, and the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
