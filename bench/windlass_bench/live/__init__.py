"""`windlass bench live`: Windlass and kube-scheduler on the same pods, nodes and API server, one after the other."""
