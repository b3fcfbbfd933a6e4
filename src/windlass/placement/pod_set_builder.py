"""Builds the pod sets to place from what quota chose: pods with their flavors' selectors and tolerations, and the
topology request.

`placement.workload_placer` and `timeplan` ask for the pending pod sets of a workload; pods with flavors applied are
kept in the decision cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from windlass.cluster.pod_table import PENDING
from windlass.cluster.shape import Shape, make_shape
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.pod import Pod, PodSpec, Toleration
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.workload import PodSet, Workload
from windlass.placement.gang import PendingPodSet
from windlass.placement.implied_topology import ImpliedTopology, is_node_ready
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree
from windlass.placement.topology.default_topology import DEFAULT_TOPOLOGY_NAME as DEFAULT_NAME
from windlass.queueing.placement_interface import PodSetChoice


class PodSetBuilder:
    def __init__(self, overlay: Overlay, system: QueueSystem, topology_levels: Sequence[str] = ()) -> None:
        """`topology_levels`: node labels where no Topology object names them; empty: the default list."""
        self._overlay, self._system = overlay, system
        self._pod_row = overlay.pod_rows()
        self.topology_levels = tuple(topology_levels)
        self._implied_topology = ImpliedTopology(overlay, topology_levels)
        self._trees = overlay.cache.domain_trees
        self.flavored_pods = overlay.cache.flavored_pods

    def pending_pod_sets(
        self, workload: Workload, choices: Sequence[PodSetChoice]
    ) -> tuple[list[PendingPodSet], DomainTree | None, str]:
        """The pods to place by pod set, and the domains and name of their topology (the last set's, if they differ)."""
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        pending, tree, topology = [], None, ""
        for choice in choices:
            pod_set = pod_sets[choice.name]
            flavors = self._flavors(choice)
            count, existing = self._to_place(pod_set, choice.count)
            tolerations = _fixed_tolerations(existing, flavors)
            pod, shape = self.with_flavors(pod_set.template, flavors, workload.queue_name, tolerations)
            with_topology = next((flavor for flavor in flavors if flavor.topology), None)
            if with_topology is not None:
                if with_topology.topology in self._system.topologies:
                    tree, topology = self._tree(with_topology), with_topology.topology
                request, own_tree = pod_set.topology, tree
            else:
                request, own_tree = self._implied_topology.request_for(workload, pod_set, pod, shape)
                tree, topology = (own_tree, DEFAULT_NAME) if own_tree is not None else (tree, topology)
            pending.append(PendingPodSet(choice.name, count, pod, shape, request, own_tree, topology, existing))
        return pending, tree, topology

    def _to_place(self, pod_set: PodSet, chosen: int) -> tuple[int, tuple[Pod, ...]]:
        """How many of the chosen pods have no node, and those of them that exist."""
        nodes, objects = self._overlay.snapshot.pods.node, self._overlay.snapshot.pods.objects
        rows = [self._pod_row[key] for key in pod_set.pod_keys if key in self._pod_row]
        bound = sum(1 for row in rows if nodes[row] >= 0)
        return max(0, chosen - bound), tuple(objects[row] for row in rows if nodes[row] == PENDING)

    def with_flavors(
        self,
        pod: Pod,
        flavors: Sequence[ResourceFlavor],
        queue: str = "",
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> tuple[Pod, Shape]:
        """The pod as admission will change it, and its shape. Where workload classes are configured it has the label of
        its queue, since a class may select by it. `tolerations`: those of pods that admission can't change."""
        # Without classes the label changes nothing, and one entry serves all queues.
        queue = "" if self._overlay.table.scorer_selector.depends_on_shape_only else queue
        fixed = () if tolerations is None else (repr(tolerations),)
        key = (id(pod), (queue, *(flavor.name for flavor in flavors), *fixed))
        entry = self.flavored_pods.get(key)
        if entry is None:
            changed = _with_queue_label(_with_flavors(pod, flavors, tolerations), queue)
            shape = make_shape(changed, self._overlay.cache.requests_of(pod))  # flavors change no request
            entry = self.flavored_pods[key] = (pod, changed, shape)
        return entry[1], entry[2]

    def _flavors(self, choice: PodSetChoice) -> list[ResourceFlavor]:
        names = dict.fromkeys(choice.flavors.values())
        return [self._system.flavors[name] for name in names if name in self._system.flavors]

    def _tree(self, flavor: ResourceFlavor) -> DomainTree:
        """The domains of the flavor's ready nodes; other nodes have no values and are in no domain."""
        key = (flavor.topology, flavor.name)
        tree = self._trees.get(key)
        if tree is None:
            nodes = self._overlay.snapshot.nodes
            levels = self._system.topologies[flavor.topology].levels
            ready = np.array([is_node_ready(node) for node in nodes.objects], dtype=np.bool_)
            eligible = nodes.matching_labels(flavor.node_labels) & ready
            values = [
                [node.labels.get(level) if is_eligible else None for level in levels]
                for node, is_eligible in zip(nodes.objects, eligible.tolist(), strict=True)
            ]
            tree = self._trees[key] = DomainTree.build(levels, values, nodes.names)
        return tree


def _with_queue_label(pod: Pod, queue: str) -> Pod:
    if not queue or QUEUE_NAME_LABEL in pod.metadata.labels:
        return pod
    labels = {**pod.metadata.labels, QUEUE_NAME_LABEL: queue}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))


def _fixed_tolerations(existing: Sequence[Pod], flavors: Sequence[ResourceFlavor]) -> tuple[Toleration, ...] | None:
    """Tolerations of pods that exist and have no gate: the API server lets nobody add any. None where admission can."""
    if not existing or existing[0].spec.scheduling_gates or not any(flavor.tolerations for flavor in flavors):
        return None
    return tuple(existing[0].spec.tolerations)


def _with_flavors(pod: Pod, flavors: Sequence[ResourceFlavor], fixed_tolerations: tuple[Toleration, ...] | None) -> Pod:
    """The pod with its flavors' node labels and tolerations, as Kueue adds them on admission."""
    if not flavors:
        return pod
    spec: PodSpec = pod.spec
    selector = dict(spec.node_selector)
    tolerations = list(spec.tolerations)
    for flavor in flavors:
        # Never contradicts the pod's own selector (`flavor_ineligible_reason`) or another flavor (`flavor_assigner`).
        selector |= flavor.node_labels
        tolerations += flavor.tolerations
    if fixed_tolerations is not None:
        tolerations = list(fixed_tolerations)
    changed = replace(spec, node_selector=selector, tolerations=tuple(tolerations))
    return replace(pod, spec=changed)
