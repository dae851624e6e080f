"""``make demo``: a burst of tasks on five levels, two worker processes, live progress."""
