"""Structured logs: JSON for machines, colours for a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure_logs(level: str = "info", style: Literal["auto", "json", "console"] = "auto") -> None:
    """Send everything Headrace logs to standard error. A library user who configures structlog needs none of this."""
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if style == "json":
        last: list[structlog.types.Processor] = [
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ]
    else:
        last = [structlog.dev.ConsoleRenderer()]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
