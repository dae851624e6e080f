"""Measures of Headrace alone: how it grows, how long its scripts take, how close it comes to the ideal.

What they drive directly is `headrace.queue.queue.Queue`, in this process: then the queue is measured and not the
worker.
"""
