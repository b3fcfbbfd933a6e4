"""What the status of an admitted Workload says about where its pods run, in the words that Kueue reads.

`apply.admission` writes it. Kueue names the host alone where that is the lowest level of the flavor's Topology, else
all levels, and counts an assignment in any other words for nothing: with a queue that is handed back to it, the place
would be given away a second time. In a flavor without a Topology the hosts are named, for a new leader that has to know
where pods which don't exist yet will be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from windlass.apply.cluster_cache import ClusterCache
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.decision import AdmittedPodSet
from windlass.model.kueue.queue_wire import ResourceFlavorObject, TopologyObject
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.node import Node
from windlass.model.unstructured import Unstructured

Labels = Mapping[str, str]
HOST_ONLY = (HOSTNAME_LABEL,)


class TopologyAssigner:
    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    def assignments(self, pod_sets: Sequence[AdmittedPodSet], version: str) -> dict[str, Unstructured]:
        """Pod set → its topology assignment, of those with known nodes."""
        return {
            part.name: topology_assignment(part.nodes, self._levels(part), self._labels(part), version)
            for part in pod_sets
            if part.nodes
        }

    def _levels(self, part: AdmittedPodSet) -> Sequence[str]:
        """The levels of the first of its flavors that has a Topology; empty where none has."""
        for name in dict.fromkeys(part.flavors.values()):
            flavor: ResourceFlavorObject | None = self._cache.get("ResourceFlavor", name, KUEUE_API_GROUP)
            topology: TopologyObject | None = (
                self._cache.get("Topology", flavor.spec.topology_name, KUEUE_API_GROUP) if flavor is not None else None
            )
            if topology is not None:
                return [level.node_label for level in topology.spec.levels]
        return ()

    def _labels(self, part: AdmittedPodSet) -> dict[str, Labels]:
        nodes: dict[str, Node | None] = {name: self._cache.get("Node", name) for name in part.nodes}
        return {name: node.labels for name, node in nodes.items() if node is not None}


def topology_assignment(
    nodes: Mapping[str, int], levels: Sequence[str], labels: Mapping[str, Labels], version: str
) -> Unstructured:
    """`nodes`: node → pods; `levels`: of the Topology, the widest first; `labels`: of the nodes."""
    known = all(level in labels.get(node, {}) for node in nodes for level in levels)
    if not known or not levels or levels[-1] == HOSTNAME_LABEL:
        levels = HOST_ONLY
    domains: Counter[tuple[str, ...]] = Counter()
    for node, pods in nodes.items():
        own = {HOSTNAME_LABEL: node, **labels.get(node, {})}
        domains[tuple(own[level] for level in levels)] += pods
    if version == "v1beta1":
        listed = [{"values": list(values), "count": count} for values, count in domains.items()]
        return {"levels": list(levels), "domains": listed}
    slice_ = {
        "domainCount": len(domains),
        "valuesPerLevel": [{"individual": {"roots": list(roots)}} for roots in zip(*domains, strict=True)],
        "podCounts": {"individual": list(domains.values())},
    }
    return {"levels": list(levels), "slices": [slice_]}
