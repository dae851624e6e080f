"""``make bench``: Headrace beside other queues, on one private Redis, in one run."""
