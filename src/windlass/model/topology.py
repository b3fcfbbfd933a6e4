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


_NAMES = {
    REGION: "region",
    ZONE: "zone",
    "network.topology.nvidia.com/spine": "spine",
    "network.topology.nvidia.com/accelerator": "NVLink domain",
    CLIQUE: "NVLink domain",
    HOSTNAME: "node",
}
_WORDS = ("subblock", "block", "rack")

LEVEL_BANDWIDTH_GB_PER_S = {
    "network.topology.nvidia.com/accelerator": 900,
    CLIQUE: 900,
    "cloud.provider.com/topology-rack": 25,
    RACK: 25,
}
"""What two GPUs exchange at the most that have this domain in common and no narrower one, where that is known: NVLink
4 inside an NVLink domain, one HDR InfiniBand port inside a rack. Closer is faster; across racks it depends on how much
the network is oversubscribed, and inside a node on its GPUs (NVLink, or 32 GB/s by PCIe 4 x16)."""


def level_name(key: str) -> str:
    """What people call the level: `rack` for `windlass.dev/rack`; the label itself where it is nobody's custom."""
    if key in _NAMES:
        return _NAMES[key]
    last = key.rpartition("/")[2].rpartition("-")[2]
    return last if last in _WORDS else key


def topology_domains(node: Node, keys: Sequence[str] = DEFAULT_TOPOLOGY_KEYS) -> tuple[str | None, ...]:
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
            key for key, domain in zip(keys, topology_domains(node, keys), strict=True) if domain is not None
        )
    return tuple(key for key in keys if key in present)
