"""Topology levels: the domains of a node, from the widest to the node itself.

Used by gang placement and the topology search. The default keys are those that clouds, NVIDIA's
tools and Kueue's guides put on nodes; `topologyLevels` of the scheduler's configuration replaces them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.model.names.kubernetes import HOSTNAME_LABEL, REGION_LABEL, ZONE_LABEL
from windlass.model.names.nvidia import (
    GPU_CLIQUE_LABEL,
    NETWORK_ACCELERATOR_LABEL,
    NETWORK_BLOCK_LABEL,
    NETWORK_SPINE_LABEL,
)
from windlass.model.names.others import (
    AWS_NETWORK_LAYER_1_LABEL,
    AWS_NETWORK_LAYER_2_LABEL,
    AWS_NETWORK_LAYER_3_LABEL,
    GCE_TOPOLOGY_BLOCK_LABEL,
    GCE_TOPOLOGY_SUBBLOCK_LABEL,
    PROVIDER_TOPOLOGY_BLOCK_LABEL,
    PROVIDER_TOPOLOGY_RACK_LABEL,
)
from windlass.model.names.windlass import BLOCK_LABEL, RACK_LABEL
from windlass.model.node import Node

DEFAULT_TOPOLOGY_KEYS = (
    REGION_LABEL,
    ZONE_LABEL,
    NETWORK_SPINE_LABEL,
    NETWORK_BLOCK_LABEL,
    GCE_TOPOLOGY_BLOCK_LABEL,
    PROVIDER_TOPOLOGY_BLOCK_LABEL,
    BLOCK_LABEL,
    AWS_NETWORK_LAYER_1_LABEL,
    AWS_NETWORK_LAYER_2_LABEL,
    AWS_NETWORK_LAYER_3_LABEL,
    GCE_TOPOLOGY_SUBBLOCK_LABEL,
    PROVIDER_TOPOLOGY_RACK_LABEL,
    RACK_LABEL,
    NETWORK_ACCELERATOR_LABEL,
    GPU_CLIQUE_LABEL,
    HOSTNAME_LABEL,
)
"""Widest first."""


_NAMES = {
    REGION_LABEL: "region",
    ZONE_LABEL: "zone",
    NETWORK_SPINE_LABEL: "spine",
    NETWORK_ACCELERATOR_LABEL: "NVLink domain",
    GPU_CLIQUE_LABEL: "NVLink domain",
    HOSTNAME_LABEL: "node",
}
_WORDS = ("subblock", "block", "rack")

LEVEL_BANDWIDTH_GB_PER_S = {
    NETWORK_ACCELERATOR_LABEL: 900,
    GPU_CLIQUE_LABEL: 900,
    PROVIDER_TOPOLOGY_RACK_LABEL: 25,
    RACK_LABEL: 25,
}
"""Bandwidth between two GPUs whose narrowest common domain has this level, if known: NVLink 4 in an NVLink domain, one
HDR InfiniBand port inside a rack. Across racks it depends on the network's oversubscription, inside a node on its
GPUs (NVLink, or 32 GB/s by PCIe 4 x16)."""


def level_name(key: str) -> str:
    """A short name of the level: `rack` for `windlass.dev/rack`; the label itself if there is none."""
    if key in _NAMES:
        return _NAMES[key]
    last = key.rpartition("/")[2].rpartition("-")[2]
    return last if last in _WORDS else key


def topology_domains(node: Node, keys: Sequence[str] = DEFAULT_TOPOLOGY_KEYS) -> tuple[str | None, ...]:
    """The node's domain at each of the levels; None if it lacks the label.

    A node without a hostname label is its own domain under its name, as the kubelet would have labelled it.
    """
    labels = node.labels
    return tuple(
        labels.get(key) if key != HOSTNAME_LABEL else labels.get(HOSTNAME_LABEL, node.name or None) for key in keys
    )


def levels_in_use(nodes: Iterable[Node], keys: Sequence[str] = DEFAULT_TOPOLOGY_KEYS) -> tuple[str, ...]:
    """The levels for which at least one node has the label, in the same order."""
    present: set[str] = set()
    for node in nodes:
        present.update(
            key for key, domain in zip(keys, topology_domains(node, keys), strict=True) if domain is not None
        )
    return tuple(key for key in keys if key in present)
