"""``python -m benchmarks.profile``: where the time of a no-op task goes, in the worker and in Redis."""
