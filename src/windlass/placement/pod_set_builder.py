"""What quota chose, as pods that can be placed: with their flavors' selectors and tolerations, and how close together.

`placement.workload_placer` and `timeplan` ask for the parts of a workload; what was made of a template is kept in the
recall.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from windlass.cluster.pod_table import PENDING
from windlass.cluster.shape import Shape, make_shape
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod, PodSpec
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.workload import Workload
from windlass.placement.gang import PendingPodSet
from windlass.placement.implied_topology import ImpliedTopology, is_node_ready
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree
from windlass.placement.topology.default_topology import DEFAULT_TOPOLOGY_NAME as DEFAULT_NAME
from windlass.queueing.placement_interface import PodSetChoice


class PodSetBuilder:
    def __init__(self, overlay: Overlay, system: QueueSystem, topology_levels: Sequence[str] = ()) -> None:
        """`levels` are the topology's where no Topology object names them; empty: the default list."""
        self._overlay, self._system = overlay, system
        self._row_of = overlay.pod_rows()
        self.topology_levels = tuple(topology_levels)
        self._closeness = ImpliedTopology(overlay, topology_levels)
        self._trees = overlay.cache.domain_trees
        self.flavored_pods = overlay.cache.flavored_pods

    def pending_pod_sets(
        self, workload: Workload, choices: Sequence[PodSetChoice]
    ) -> tuple[list[PendingPodSet], DomainTree | None, str]:
        """The pods that are to be placed, the domains of their flavor, and the topology's name."""
        sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        parts, tree, topology = [], None, ""
        for choice in choices:
            pod_set = sets[choice.name]
            flavors = self._flavors(choice)
            pod, shape = self.with_flavors(pod_set.template, flavors, workload.queue_name)
            named = next((flavor for flavor in flavors if flavor.topology), None)
            if named is not None and named.topology in self._system.topologies:
                tree, topology = self._tree(named), named.topology
            request = pod_set.topology if named is not None else None
            own = tree if named is not None else None
            if named is None:
                request, own = self._closeness.request_for(workload, pod_set, pod, shape)
                tree, topology = (own, DEFAULT_NAME) if own is not None else (tree, topology)
            waiting = [self._row_of[key] for key in pod_set.pod_keys if key in self._row_of]
            nodes = self._overlay.snapshot.pods.node
            objects = self._overlay.snapshot.pods.objects
            existing = tuple(objects[row] for row in waiting if nodes[row] == PENDING)
            bound = sum(1 for row in waiting if nodes[row] >= 0)
            left = max(0, choice.count - bound)
            parts.append(PendingPodSet(choice.name, left, pod, shape, request, own, topology, existing))
        return parts, tree, topology

    def with_flavors(self, pod: Pod, flavors: Sequence[ResourceFlavor], queue: str = "") -> tuple[Pod, Shape]:
        """The pod as it will be. Where classes say how pods are placed, it carries its queue, which may be a class."""
        queue = "" if self._overlay.table.scorer_selector.depends_on_shape_only else queue
        key = (id(pod), (queue, *(flavor.name for flavor in flavors)))
        known = self.flavored_pods.get(key)
        if known is None:
            made = _in_queue(_flavored(pod, flavors), queue)
            known = self.flavored_pods[key] = (pod, made, make_shape(made))
        return known[1], known[2]

    def _flavors(self, choice: PodSetChoice) -> list[ResourceFlavor]:
        names = dict.fromkeys(choice.flavors.values())
        return [self._system.flavors[name] for name in names if name in self._system.flavors]

    def _tree(self, flavor: ResourceFlavor) -> DomainTree:
        """The domains of the flavor's nodes."""
        key = (flavor.topology, flavor.name)
        found = self._trees.get(key)
        if found is None:
            facts = self._overlay.snapshot.nodes
            levels = self._system.topologies[flavor.topology].levels
            ready = np.array([is_node_ready(node) for node in facts.objects], dtype=np.bool_)
            ours = facts.matching_labels(flavor.node_labels) & ready
            values = [
                [node.labels.get(level) if mine else None for level in levels]
                for node, mine in zip(facts.objects, ours.tolist(), strict=True)
            ]
            found = self._trees[key] = DomainTree.build(levels, values, facts.names)
        return found


def _in_queue(pod: Pod, queue: str) -> Pod:
    if not queue or QUEUE_NAME in pod.metadata.labels:
        return pod
    labels = {**pod.metadata.labels, QUEUE_NAME: queue}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def _flavored(pod: Pod, flavors: Sequence[ResourceFlavor]) -> Pod:
    """The pod as it will be once its flavors' labels and tolerations are on it."""
    if not flavors:
        return pod
    spec: PodSpec = pod.spec
    selector = dict(spec.node_selector)
    tolerations = list(spec.tolerations)
    for flavor in flavors:
        selector |= flavor.node_labels
        tolerations += flavor.tolerations
    changed = msgspec.structs.replace(spec, node_selector=selector, tolerations=tuple(tolerations))
    return msgspec.structs.replace(pod, spec=changed)
