"""Workloads that can never fit: they need more than the nodes have when nothing else runs.

`placement.workload_placer` asks before it places a workload, so that nothing is evicted for one that can't start, and
the hold says so at once; `placement.explain` uses the counts. An upper bound from sums: what it lets pass may still
find no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import DEV_END, DEV_FIRST, GEOMETRY, HEALTHY, MODEL, REPLICAS, Ints, Uint64s
from windlass.model.names.kubernetes import HOSTNAME_LABEL, NODE_TAINT_PREFIX
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from windlass.model.node import Node
from windlass.model.reasons import WHY_TAINT, WHY_UNSCHEDULABLE
from windlass.model.requests import format_amount
from windlass.model.topology import level_name
from windlass.model.verdict import format_reason_counts
from windlass.placement.gang import PendingPodSet
from windlass.placement.kernels.devices import MAX_INSTANCES, mig_mask, mig_start
from windlass.placement.overlay import Overlay
from windlass.placement.verdicts import reason_of

UNLIMITED = 1 << 31
TOO_LARGE = "REQUEST_EXCEEDS_CLUSTER"
NO_NODE_LARGE_ENOUGH = "no node is large enough for one of its pods, even when empty"
"""`explain.advisor` replaces it by the number, where it explains the hold."""
UNAVAILABLE_BITS = WHY_UNSCHEDULABLE | WHY_TAINT
"""Reasons that go away once a node that is cordoned or has a condition taint is available again."""


class NeverFits(NamedTuple):
    code: str
    message: str


class EmptyCluster:
    """Made once a decision; counts are kept, since the nodes don't change within it."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._cached_counts: dict[bytes, Ints] = {}
        self._unavailable: Bools | None = None

    def never_fits(self, pod_sets: Sequence[PendingPodSet]) -> NeverFits | None:
        """Without regard to topology."""
        for pod_set in pod_sets:
            most = int(self.pods_per_empty_node(pod_set).sum())
            if pod_set.count and not most:
                return self._no_node_reason(pod_set)
            if pod_set.count > most:
                return NeverFits(TOO_LARGE, f"on the empty cluster only {most} of {pod_set.count} pods would fit")
        return self._exceeds_sums(pod_sets) if len(pod_sets) > 1 else None

    def _exceeds_sums(self, pod_sets: Sequence[PendingPodSet]) -> NeverFits | None:
        """Whether the pod sets together need more of a resource than the nodes that they may use have."""
        overlay, needed = self._overlay, dict[str, int]()
        usable: dict[str, Bools] = {}
        instances: dict[str, Ints] = {}
        for pod_set in pod_sets:
            nodes = self.pods_per_empty_node(pod_set) > 0
            for name, amount in pod_set.shape.requests if pod_set.count else ():
                needed[name] = needed.get(name, 0) + amount * pod_set.count
                usable[name] = usable.get(name, nodes) | nodes
                if pod_set.shape.gpu is not None and pod_set.shape.gpu.profile and name == mig_resource(pod_set):
                    instances[name] = self.instances_per_node(pod_set, name)
        for name, amount in needed.items():
            by_node = instances.get(name)
            if by_node is None:
                by_node = self._allocatable(name, overlay.snapshot.resources.column(name))
            has = int(by_node[usable[name]].sum())
            if amount > has:
                requested, available = format_amount(name, amount), format_amount(name, has)
                message = (
                    f"its pods request {requested} {name} in all, and the nodes that they may use have {available}"
                )
                return NeverFits(TOO_LARGE, message)
        return None

    def never_fits_topology(self, pod_sets: Sequence[PendingPodSet]) -> NeverFits | None:
        """Where each pod set, or each of its slices, has to be in one domain."""
        for pod_set in pod_sets:
            wanted = pod_set.topology
            if wanted is None or pod_set.tree is None or not pod_set.count:
                continue
            limits = [(wanted.level, pod_set.count)] if wanted.mode == "required" else []
            limits += [(wanted.slice_level, wanted.slice_size)] if wanted.slice_level else []
            for level, pods in limits:
                most = self._most_in_one_domain(pod_set, pod_set.tree.levels, level)
                if most < pods:
                    where = level_name(level)
                    return NeverFits(
                        TOO_LARGE, f"the largest {where} has room for {most} of {pods} pods when it is empty"
                    )
        return None

    def _most_in_one_domain(self, pod_set: PendingPodSet, levels: Sequence[str], level: str) -> int:
        """Pods that the largest domain would take. A domain has the values of all wider levels too, since a rack's name
        may occur in several zones."""
        counts, nodes = self.pods_per_empty_node(pod_set), self._overlay.snapshot.nodes
        if level not in levels:
            return UNLIMITED
        # A node is its own domain, whatever its label says.
        if level == HOSTNAME_LABEL:
            return int(counts.max(initial=0))
        columns = [nodes.label(wider) for wider in levels[: levels.index(level) + 1]]
        inside = np.logical_and.reduce([column.present for column in columns])
        codes = np.stack([column.codes for column in columns], axis=1)[inside]
        if not len(codes):
            return 0
        _, domain = np.unique(codes, axis=0, return_inverse=True)
        sums = np.zeros(len(codes), dtype=np.int64)
        np.add.at(sums, domain.reshape(-1), counts[inside])
        return int(sums.max())

    def pods_per_empty_node(self, pod_set: PendingPodSet) -> Ints:
        """By node, how many pods of the pod set it would take if it were empty."""
        overlay = self._overlay
        counts = self._cached_counts.get(pod_set.shape.key)
        if counts is None:
            row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
            allowed = self._allowed_nodes(overlay.table.static(row))
            counts = self._cached_counts[pod_set.shape.key] = self._pods_per_node(pod_set, allowed)
        return counts

    def pods_per_empty_node_without_rules(self, pod_set: PendingPodSet) -> Ints:
        """The same, as if no node-local filter refused a node."""
        return self._pods_per_node(pod_set, np.ones(self._overlay.snapshot.nodes.size, dtype=np.bool_))

    def _allowed_nodes(self, static: Uint64s) -> Bools:
        """Nodes that allow the pod, or will once they are ready and uncordoned."""
        if self._unavailable is None:
            self._unavailable = np.array(
                [_is_unavailable(node) for node in self._overlay.snapshot.nodes.objects], dtype=np.bool_
            )
        allowed: Bools = np.where(self._unavailable, static & ~np.uint64(UNAVAILABLE_BITS) == 0, static == 0)
        return allowed

    def _pods_per_node(self, pod_set: PendingPodSet, allowed: Bools) -> Ints:
        state, snapshot = self._overlay.state, self._overlay.snapshot
        counts: Ints = np.where(allowed, UNLIMITED, 0).astype(np.int64)
        profile = pod_set.shape.gpu is not None and bool(pod_set.shape.gpu.profile)
        for name, amount in pod_set.shape.requests:
            if profile and name.startswith(MIG_RESOURCE_PREFIX):
                np.minimum(counts, self._pods_by_instances(pod_set, amount), out=counts)
                continue
            column = snapshot.resources.column(name)
            np.minimum(counts, self._allocatable(name, column) // max(1, amount), out=counts)
        gpu = pod_set.shape.gpu
        if gpu is not None and not profile:
            per_pod = max(1, gpu.count)
            slots = 1 if gpu.milli == 1000 or not gpu.milli else max(1, 1000 // gpu.milli)
            devices = self._devices_of_models(snapshot.gpu_models.mask(gpu.models))
            # Two GPUs of a pod are two devices, also where it takes only a share of each.
            most = np.where(devices >= per_pod, devices * slots // per_pod, 0)
            most = np.where(state.node_info[:, REPLICAS] > 1, UNLIMITED, most)
            if not gpu.milli:  # by GPU memory: how many pods fit on one device depends on the device
                most = np.where(devices >= per_pod, UNLIMITED, 0)
            np.minimum(counts, most, out=counts)
        return np.maximum(counts, 0, out=counts)

    def _allocatable(self, resource: str, column: int) -> Ints:
        """By node; of GPUs with those that are unhealthy, since they may be repaired."""
        state = self._overlay.state
        if resource != GPU_RESOURCE:
            return state.allocatable[:, column]
        unhealthy = self._sum_by_node(state.device_info[:, HEALTHY] == 0)
        # Where nodes advertise unhealthy ones as well, there are no more than devices.
        devices = np.maximum(state.node_info[:, DEV_END] - state.node_info[:, DEV_FIRST], state.allocatable[:, column])
        repaired: Ints = np.minimum(state.allocatable[:, column] + unhealthy, devices)
        return repaired

    def instances_per_node(self, pod_set: PendingPodSet, resource: str) -> Ints:
        """By node, MIG instances of the profile when nothing runs: advertised ones, or as many as can be created."""
        state, snapshot = self._overlay.state, self._overlay.snapshot
        row = self._overlay.table.row(pod_set.shape, snapshot, pod_set.pod)
        advertised = state.allocatable[:, snapshot.resources.column(resource)]
        return np.where(self._creates_instances, self._sum_by_node(self._creatable(row)), advertised)

    def _pods_by_instances(self, pod_set: PendingPodSet, per_pod: int) -> Ints:
        most = self.instances_per_node(pod_set, mig_resource(pod_set)) // max(1, per_pod)
        # A grant has no room for more instances that are created for one pod.
        return np.where(self._creates_instances & (per_pod > MAX_INSTANCES), 0, most)

    @property
    def _creates_instances(self) -> Bools:
        created: Bools = self._sum_by_node(self._overlay.state.device_info[:, GEOMETRY] >= 0) > 0
        return created

    def _creatable(self, row: int) -> Ints:
        """By device, how many instances of the profile it holds when it is empty."""
        state, shapes = self._overlay.state, self._overlay.table.shapes
        known: dict[tuple[int, ...], int] = {}
        counts = np.zeros(len(state.device_info), dtype=np.int64)
        for device, kind in enumerate(map(tuple, state.device_info[:, [MODEL, GEOMETRY]].tolist())):
            if kind not in known:
                used = known[kind] = 0
                while (start := mig_start(state, shapes, row, device, used)) >= 0:
                    used |= mig_mask(state, shapes, row, device, start)
                    known[kind] += 1
            counts[device] = known[kind]
        return counts

    def _devices_of_models(self, models: int) -> Ints:
        """By node, GPUs of these models, healthy or not: an unhealthy one may be repaired."""
        state = self._overlay.state
        return self._sum_by_node(models >> np.maximum(state.device_info[:, MODEL], 0) & 1 == 1)

    def _sum_by_node(self, by_device: Ints | Bools) -> Ints:
        info = self._overlay.state.node_info
        # Devices are in node order, so the sum of a node is a difference of prefix sums.
        sums = np.concatenate([[0], np.cumsum(by_device.astype(np.int64))])
        found: Ints = sums[info[:, DEV_END]] - sums[info[:, DEV_FIRST]]
        return found

    def _no_node_reason(self, pod_set: PendingPodSet) -> NeverFits:
        overlay = self._overlay
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        static = overlay.table.static(row)
        if not len(static) or (static == 0).any():
            return NeverFits(TOO_LARGE, NO_NODE_LARGE_ENOUGH)
        counts = [int(np.count_nonzero(static >> np.uint64(bit) & np.uint64(1))) for bit in range(64)]
        # The most frequent reason; of equals the lowest bit.
        bit = int(np.argmax(counts))
        words = format_reason_counts(
            (reason_of(pod_set.shape, at).kube_words, nodes) for at, nodes in enumerate(counts) if nodes
        )
        message = f"0/{len(static)} nodes are available: {words}."
        return NeverFits(reason_of(pod_set.shape, bit).code, message)


def mig_resource(pod_set: PendingPodSet) -> str:
    """The MIG resource that its pods request; empty where they request none."""
    return next((name for name, _ in pod_set.shape.requests if name.startswith(MIG_RESOURCE_PREFIX)), "")


def _is_unavailable(node: Node) -> bool:
    """Cordoned, or tainted only by conditions, whose taints Kubernetes removes again."""
    hard = [taint.key for taint in node.spec.taints if taint.effect != "PreferNoSchedule"]
    return (node.spec.unschedulable or bool(hard)) and all(key.startswith(NODE_TAINT_PREFIX) for key in hard)
