"""What a kubelet's question is answered with. Worker and operator each know themselves what the answer is."""

from __future__ import annotations

import json
from collections.abc import Mapping


def path_of(request: bytes) -> bytes:
    """The path that was asked for; empty when this is no request."""
    return [*request.split(b" "), b""][1]


def plain(text: bytes, content_type: str) -> bytes:
    """200 with this text."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (content_type.encode(), len(text)) + text


def not_found(text: bytes = b"") -> bytes:
    """404, and what to do about it."""
    head = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % len(text) + text


def response(good: bool | None, told: Mapping[str, object]) -> bytes:
    """200 or 503 with ``told`` as JSON; None: there is no such path."""
    if good is None:
        return not_found()
    text = json.dumps(told).encode()
    if good:
        return plain(text, "application/json")
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(text) + text
