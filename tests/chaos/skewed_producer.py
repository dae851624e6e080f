"""A producer in a process of its own, so that it can have a clock of its own.

``python -m tests.chaos.skewed_producer``: reads from stdin a JSON list of [handler, arguments, options], enqueues
them, and writes as JSON the ids, the wall-clock time, and the monotonic time before and after.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from tests.chaos.drill_app import QUEUE, make_app


async def main() -> None:
    async with make_app() as app:
        calls = [
            app.remote(handler, queue=QUEUE, **options).call(*arguments)
            for handler, arguments, options in json.load(sys.stdin)
        ]
        before_s = time.monotonic()
        handles = await app.enqueue_many(calls)
        answer = {
            "ids": [handle.id for handle in handles],
            "wall_clock_s": time.time(),
            "before_s": before_s,
            "after_s": time.monotonic(),
        }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
