"""What the kubelet's topology manager demands of the GPUs of a pod, by its policy.

The node agent publishes the policy as an annotation of its Node; `cluster.node_state_builder` reads it here, and
`placement.kernels.devices` obeys it: a pod whose GPUs would not be aligned is refused by the kubelet with
TopologyAffinityError. The policies `none` and `best-effort` refuse nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.names.windlass import TOPOLOGY_MANAGER_ANNOTATION

ANY_NUMA_NODES, ONE_NUMA_NODE, FEWEST_NUMA_NODES = range(3)
"""Codes for the kernels: all GPUs of a pod are of one NUMA node, or of as few as could ever hold them."""
_BY_POLICY = {"single-numa-node": ONE_NUMA_NODE, "restricted": FEWEST_NUMA_NODES}


def numa_alignment(annotations: Mapping[str, str]) -> int:
    """An unknown policy, and none, demand nothing."""
    return _BY_POLICY.get(annotations.get(TOPOLOGY_MANAGER_ANNOTATION, ""), ANY_NUMA_NODES)
