"""A collector of spans: what OTLP/HTTP exporters send, received by a server of the test's own and decoded."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Span:
    """One span as it arrived."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    is_error: bool
    status_message: str
    events: tuple[tuple[str, dict[str, Any]], ...]
    service: str


class Collector:
    """Listens while the block runs. ``hangs``: takes connections and never answers."""

    def __init__(self, *, hangs: bool = False) -> None:
        self._spans: list[Span] = []
        self._lock = threading.Lock()
        self._let_go = threading.Event()
        self.requests = 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector._lock:
                    collector.requests += 1
                if hangs:
                    collector._let_go.wait()
                    return
                assert self.path == "/v1/traces", self.path
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector._take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Span]:
        """All that has arrived, by their start."""
        with self._lock:
            return sorted(self._spans, key=lambda span: span.start_ns)

    def _take(self, body: bytes) -> None:
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _values(resource_spans.resource.attributes)["service.name"]
            for scope_spans in resource_spans.scope_spans:
                with self._lock:
                    self._spans += [_read(span, service) for span in scope_spans.spans]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if error is not None:
            print(*self.spans, sep="\n")


def _read(span: WireSpan, service: str) -> Span:
    return Span(
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        status_message=span.status.message,
        events=tuple((event.name, _values(event.attributes)) for event in span.events),
        service=service,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
