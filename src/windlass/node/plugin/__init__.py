"""The device plugin: reports the node's GPUs to the kubelet and answers its allocation requests.

`manager` keeps one `resource_server` per resource in step with inventory, configuration and health; `registrar`
registers them with the kubelet, again after each of its restarts; `preferred_allocation` and `allocate` answer
requests. This is the small, critical process: it needs neither the API server nor the sidecar.
"""
