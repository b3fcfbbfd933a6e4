"""What runs on a GPU node: device back ends, device plugin, labels, CDI, sharing setup, MIG manager, health,
exporter.

Input: the hardware (or its simulation) and NVIDIA's configuration files. Output: the kubelet, the Node object, the
container runtime and Prometheus. The package `sharing` decides what is possible and uses neither files nor a clock;
this package executes it. No numpy here: an agent that runs on every node has to be small.
"""
