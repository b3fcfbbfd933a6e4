"""What Windlass, and kube-scheduler with Kueue, ask of one real API server: requests, watches and bytes, by role."""
