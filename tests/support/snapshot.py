"""All keys of a pattern with what they hold, for seeing that nothing was written."""

from __future__ import annotations

from typing import Any

import redis


def snapshot(client: redis.Redis, pattern: str) -> dict[bytes, Any]:
    """By content, not by DUMP: a hash that Redis is rehashing dumps in another order each time it is read."""
    return {key: _content(client, key) for key in sorted(client.scan_iter(match=pattern, count=1000))}


def _content(client: redis.Redis, key: bytes) -> Any:
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    if kind == b"set":
        return client.smembers(key)
    if kind == b"list":
        return client.lrange(key, 0, -1)
    if kind == b"stream":
        return client.xrange(key)
    return client.get(key)
