"""Sending spans to a collector, from a process that is Headrace's own: ``headrace worker`` and its handler processes.

It is set up by OpenTelemetry's own variables, and nothing is imported unless they name a place to send spans to. A
program that sets up OpenTelemetry itself is left alone. Spans wait in a bounded line and are sent from a thread of
their own: while no collector answers they are dropped, and tasks go on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

LAST_SPANS_S: Final = 2.0
"""How long the last spans may take. It is part of the time in which a stopped worker has to be gone."""
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OUR_PROTOCOL: Final = "http/protobuf"

_log = structlog.get_logger(__name__)


class Exporting:
    """Spans on their way out, until stopped."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def stop(self, patience_s: float = LAST_SPANS_S) -> None:
        """Send what is there, as far as that is possible in time. The process is about to end."""
        last = threading.Thread(target=self._provider.shutdown, name="headrace-last-spans", daemon=True)
        last.start()
        last.join(patience_s)


def begin_exporting(environment: Mapping[str, str], service: str) -> Exporting | None:
    """Send spans from now on, if the environment says where to; ``service`` is the name if it says none.

    A program that has set up OpenTelemetry has no need of this, so call it after the program's own modules have been
    imported.
    """
    try:
        return _begin(environment, service)
    except _Refused as refused:
        _log.warning(f"no spans are sent: {refused}")
        return None


def begin_exporting_too(environment: Mapping[str, str], service: str) -> None:
    """The same in a process that the worker has started; it has said already what stands in the way."""
    with contextlib.suppress(_Refused):
        _begin(environment, service)


class _Refused(Exception):
    """What stands in the way, and what to do about it."""


def _begin(environment: Mapping[str, str], service: str) -> Exporting | None:
    if not _first(environment, _ENDPOINTS) or not _is_wanted(environment):
        return None
    protocol = _first(environment, _PROTOCOLS)
    if protocol not in ("", _OUR_PROTOCOL):
        raise _Refused(
            f"the protocol {protocol} is not spoken here; set OTEL_EXPORTER_OTLP_PROTOCOL to {_OUR_PROTOCOL}, "
            "and the endpoint to the collector's port for it, usually 4318"
        )
    try:
        from opentelemetry import trace

        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return None  # the program's own
        provider = _provider(service)
    except ImportError as error:
        raise _Refused("install what they need with pip install 'headrace[tracing]'") from error
    except Exception as error:  # whatever a variable has in it, tasks go on
        raise _Refused(f"OpenTelemetry refuses its variables (OTEL_…): {error}") from error
    trace.set_tracer_provider(provider)
    return Exporting(provider)


def _is_wanted(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return environment.get("OTEL_TRACES_EXPORTER", "").strip() in ("", "otlp")


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")


def _provider(service: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    # Its own end would wait for the collector without a bound, at the exit of the interpreter.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
