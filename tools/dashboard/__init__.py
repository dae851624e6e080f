"""The chart's Grafana dashboard, described in a few lines for each panel: ``python -m tools.dashboard`` writes it."""
