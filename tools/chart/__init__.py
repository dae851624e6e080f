"""What the chart holds twice, made from where it is written once: its CRDs, its values' schema and its README.

What belongs here: reading ``values.yaml`` with its comments, and the texts made of it. What does not: running helm,
which `tests/chart` does.
"""
