"""A picture of the Grafana dashboard with the figures of a Prometheus: ``python -m benchmarks.dashboard``.

It takes the dashboard's own JSON and asks the dashboard's own queries, so it shows what Grafana would, in SVG: the
panels are where they are in Grafana. What belongs here: rows, stats and time series with lines, stacks and bars, as far
as our dashboard has them. What does not: the rest of Grafana.
"""
