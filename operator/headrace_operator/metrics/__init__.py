"""What the operator tells Prometheus; docs/metrics.md is the contract. Nothing here decides or writes anything."""
