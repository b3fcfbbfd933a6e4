"""A Kubernetes cluster in one process: API server, the controllers that GPU workloads need, and the nodes.

`embedded_cluster` puts it together for `windlass up`, tests and benchmarks.
"""
