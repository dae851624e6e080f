"""Helpers for the tests of programs that use Headrace: no Redis, no worker.

::

    from headrace.testing import inline

    async def test_welcome_mail():
        with inline(app) as box:
            await register_user("a@b.c")                    # enqueues send
        box.assert_enqueued(send, "a@b.c", body="welcome")

With ``inline(app)`` a task runs where it is enqueued, with its arguments through JSON and back, its type
hints checked, and its retries made at once. With ``inline(app, run=False)`` tasks are only collected.
"""

from .inline import EnqueuedTask, InlineBox, inline

__all__ = ["EnqueuedTask", "InlineBox", "inline"]
