"""Topology levels: which domains a node lies in, from the widest to the node itself.

Reads node labels; feeds gang placement and the topology search. The default keys are those that clouds, NVIDIA's
tools and Kueue's guides put on nodes; `topologyLevels` of the scheduler's configuration replaces them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.model.node import Node

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
BLOCK = "windlass.dev/block"
RACK = "windlass.dev/rack"
CLIQUE = "nvidia.com/gpu.clique"
HOSTNAME = "kubernetes.io/hostname"

DEFAULT_TOPOLOGY_KEYS = (
    REGION,
    ZONE,
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/block",
    "cloud.google.com/gce-topology-block",
    "cloud.provider.com/topology-block",
    BLOCK,
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "cloud.provider.com/topology-rack",
    RACK,
    "network.topology.nvidia.com/accelerator",
    CLIQUE,
    HOSTNAME,
)
"""Widest first."""


def levels_of(node: Node, keys: Sequence[str] = DEFAULT_TOPOLOGY_KEYS) -> tuple[str | None, ...]:
    """The node's domain at each of the levels; None where it has no such label.

    A node without a hostname label is its own domain under its name, as the kubelet would have labelled it.
    """
    labels = node.labels
    return tuple(
        labels.get(key) if key != HOSTNAME else labels.get(HOSTNAME, node.name or None) for key in keys
    )


def levels_in_use(nodes: Iterable[Node], keys: Sequence[str] = DEFAULT_TOPOLOGY_KEYS) -> tuple[str, ...]:
    """Those of the levels that at least one node is labelled with, in the same order."""
    present: set[str] = set()
    for node in nodes:
        present.update(
            key for key, domain in zip(keys, levels_of(node, keys), strict=True) if domain is not None
        )
    return tuple(key for key in keys if key in present)
