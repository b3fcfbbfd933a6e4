"""The device plugin: what the kubelet is told about the node's GPUs, and what containers are given.

`manager` keeps one `resource_server` per resource in step with inventory, configuration and health; `registrar` makes
the kubelet know them, again after each of its restarts; `prefer` and `allocate` decide what a request gets. This is
the small, critical process: it needs neither the API server nor the rest of the agent.
"""
