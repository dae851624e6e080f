"""``make demo``: a Kubernetes cluster, the chart, a burst of tasks, and workers from none to none."""
