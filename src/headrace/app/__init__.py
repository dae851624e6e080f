"""What a program that uses Headrace holds in its hands: the app, its tasks, and handles on what it enqueued.

What belongs here: the decorator, argument checking, options, result waiting, the blocking twin of the
asyncio API. What does not: running handlers (`headrace.worker`) and anything about Redis
(`headrace.queue`).
"""
