"""Tasks to try a worker out with; the worker image runs them until it is given yours."""
