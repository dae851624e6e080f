"""The only room that knows Redis: keys, scripts, connections and the queue's verbs.

What belongs here: how tasks are stored and moved. What does not: handlers, decorators, command lines, and
decisions that need no Redis (those are in `headrace.model`).

Start with `headrace.queue.queue.Queue`; each of its verbs is one file in ``lua/``.
"""
