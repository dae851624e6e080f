"""Structured logs: JSON for machines, colours for a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog
import structlog.tracebacks

Style = Literal["auto", "json", "console"]


def configure_logs(level: str = "info", style: Style = "auto") -> None:
    """Send everything Headrace logs to standard error. A library user who configures structlog needs none of this."""
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *_stamps(), *_rendering(style)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def configure_foreign_logs(level: str = "warning", style: Style = "auto") -> None:
    """The same for what libraries log through the standard library."""
    logging.basicConfig(level=level.upper(), handlers=[_foreign_handler(style)], force=True)


def adopt_logs_of(package: str, style: Style = "auto") -> None:
    """The same for one package's warnings, unless the program has seen to them itself."""
    logger = logging.getLogger(package)
    if not logger.hasHandlers():
        logger.addHandler(_foreign_handler(style))


def _foreign_handler(style: Style) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_stamps(),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(style)],
        )
    )
    return handler


def _stamps() -> list[structlog.types.Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _rendering(style: Style) -> list[structlog.types.Processor]:
    if style == "json" or (style == "auto" and not sys.stderr.isatty()):
        # Without the variables of each frame, which is what structlog does if not told otherwise: among them are
        # passwords and what tasks carry.
        as_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [structlog.processors.ExceptionRenderer(as_dict), structlog.processors.JSONRenderer()]
    return [structlog.dev.ConsoleRenderer()]
