"""What runs on a GPU node: device back ends, device plugin, labels, CDI, sharing set-up, MIG manager, health, exporter.

Fed by the hardware (or by its simulation) and by NVIDIA's configuration files; feeds the kubelet, the node object, the
container runtime and Prometheus. What can be is decided in `sharing`, which knows no files and no clock; this room
carries it out. No numpy: an agent that sits on every node has to be small.
"""
