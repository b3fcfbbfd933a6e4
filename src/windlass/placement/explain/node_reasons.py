"""Groups the nodes by the reasons for which they refuse a pod set, and finds the cause of the hold (rule in `cause`).

`advisor` calls `find_cause` on the decision's overlay, `diagnose` on its own overlay for pods that don't exist yet.
Nothing is placed: a few passes over the columns, once for all pods of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import DEV_END, DEV_FIRST, GEOMETRY, Ints
from windlass.cluster.shape import Shape
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from windlass.model.reasons import CAPACITY_BITS, NODE_REASONS, WHY_GPU_UNHEALTHY, WHY_TAINT, insufficient_reason
from windlass.model.requests import is_extended_resource
from windlass.model.taints import HARD_EFFECTS, taint_code, tolerates
from windlass.placement.empty_cluster import EmptyCluster
from windlass.placement.explain.cause import GPU_CODES, TOO_LARGE, NodeGroup, cause_of, cause_rank
from windlass.placement.explain.gpu_fragmentation import GPU_FRAGMENTED, GPU_FULL, GpuTotals
from windlass.placement.explain.pod_set_feasibility import PodSetFeasibility
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.verdicts import bits_of, reason_of

NO_SUCH_RESOURCE = "RESOURCE_NAME_MISMATCH"
STORAGE_CODE = "STORAGE_INSUFFICIENT"
NODE_REFUSAL_CODES = frozenset(
    {reason.code for reason in NODE_REASONS}
    | {insufficient_reason(name).code for name in ("cpu", "ephemeral-storage", "pods", GPU_RESOURCE, "other.com/x")}
    | {TOO_LARGE, NO_SUCH_RESOURCE}
)
"""Codes of holds whose cause is looked for in what the nodes refuse."""
TOO_SMALL_CODES = {
    "cpu": "CPU_MEM_INSUFFICIENT",
    "memory": "CPU_MEM_INSUFFICIENT",
    "pods": "POD_COUNT_LIMIT",
    "ephemeral-storage": "EPHEMERAL_STORAGE",
}
"""Resource of which an empty node has too little → code; for devices the code is TOO_LARGE."""


def find_cause(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    allowed_nodes: Bools,
    reported: str,
    empty: EmptyCluster,
) -> str:
    """The cause of a hold of these pod sets on the nodes as they are; `reported` is the code of the decision."""
    pod_set = _tightest(overlay, [pod_set for pod_set in pod_sets if pod_set.count])
    if pod_set is None:
        return reported
    if is_unknown_resource(overlay, pod_set):
        return NO_SUCH_RESOURCE
    if not _has_devices(overlay, pod_set).any():
        return TOO_LARGE  # each requested device exists, but no node has all of them
    found = cause_of(reported, pod_set.count, node_groups(overlay, pod_set, allowed_nodes, empty))
    is_fragmented = found == GPU_FULL and GpuTotals(overlay, pod_sets, allowed_nodes).are_fragmented
    return GPU_FRAGMENTED if is_fragmented else found


def _tightest(overlay: Overlay, pod_sets: Sequence[PendingPodSet]) -> PendingPodSet | None:
    """The pod set with most pods that don't fit now; of equals the first."""
    if len(pod_sets) < 2:
        return pod_sets[0] if pod_sets else None
    return max(pod_sets, key=lambda pod_set: pod_set.count - PodSetFeasibility(overlay, pod_set).placeable)


def node_groups(overlay: Overlay, pod_set: PendingPodSet, allowed_nodes: Bools, empty: EmptyCluster) -> list[NodeGroup]:
    """`allowed_nodes`: the nodes that count at all, such as those of the queue's flavors."""
    row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
    reasons, too_small = overlay.reasons(pod_set.pod, row), _too_small(overlay, pod_set)
    holds = empty.pods_per_empty_node_without_rules(pod_set)
    taints = np.where(reasons & np.uint64(WHY_TAINT), overlay.snapshot.nodes.taint_set_codes, -1)
    candidates = np.flatnonzero(allowed_nodes & _has_devices(overlay, pod_set))
    # Nodes with the same reasons, taints and too small resources answer alike: one group for each distinct row.
    columns = np.stack([reasons.view(np.int64), taints.astype(np.int64), too_small], axis=1)[candidates]
    if not len(columns):
        return []
    keys, group_of_node = np.unique(columns, axis=0, return_inverse=True)
    pods = np.bincount(group_of_node.reshape(-1), holds[candidates]).astype(np.int64)
    return [
        _group(overlay, pod_set, (int(np.uint64(key[0])), int(key[1]), int(key[2])), held)
        for key, held in zip(keys, pods.tolist(), strict=True)
    ]


def _group(overlay: Overlay, pod_set: PendingPodSet, key: tuple[int, int, int], holds: int) -> NodeGroup:
    """`key`: mask of reasons, code of the taint set, mask of the resources for which the nodes are too small."""
    reasons, taints, too_small = key
    permanent, capacity = set[str](), set[str]()
    if reasons & WHY_GPU_UNHEALTHY:  # as if the GPUs were repaired: only their health counts
        permanent.add("DEVICE_UNHEALTHY")
        too_small, holds = 0, max(1, holds)
    for bit in bits_of(reasons):
        if WHY_GPU_UNHEALTHY >> bit & 1:
            continue
        if CAPACITY_BITS >> bit & 1:
            capacity.add(reason_of(pod_set.shape, bit).code)
        elif WHY_TAINT >> bit & 1:
            permanent |= _taint_codes(overlay, pod_set, taints)
        else:
            permanent.add(reason_of(pod_set.shape, bit).code)
    sizes = {TOO_SMALL_CODES.get(pod_set.shape.requests[place][0], TOO_LARGE) for place in bits_of(too_small)}
    if not holds and not too_small:
        sizes.add(TOO_LARGE)  # the node has too few GPUs, or of another model
    capacity -= sizes | (GPU_CODES if TOO_LARGE in sizes else set())  # lacking GPUs follow from the size
    permanent |= sizes
    by_rank = partial(sorted, key=cause_rank)
    return NodeGroup(tuple(by_rank(permanent)), tuple(by_rank(capacity)), max(1, holds))


def _taint_codes(overlay: Overlay, pod_set: PendingPodSet, taints: int) -> set[str]:
    tolerations = pod_set.pod.spec.tolerations
    hard = [taint for taint in overlay.snapshot.nodes.taint_sets[taints] if taint.effect in HARD_EFFECTS]
    return {taint_code(taint.key) for taint in hard if not tolerates(tolerations, taint)}


def _too_small(overlay: Overlay, pod_set: PendingPodSet) -> Ints:
    """By node, a bit for each requested resource of which the empty node has too little."""
    total, resources = overlay.state.allocatable, overlay.snapshot.resources
    bits: Ints = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
    for place, (name, amount) in enumerate(pod_set.shape.requests):
        lacks = total[:, resources.column(name)] < amount
        if is_made_on_demand(pod_set.shape, name):
            lacks &= ~_creates_instances(overlay)
        bits |= lacks.astype(np.int64) << place
    return bits


def _has_devices(overlay: Overlay, pod_set: PendingPodSet) -> Bools:
    """By node, whether it has at least one of every requested device."""
    state, resources = overlay.state, overlay.snapshot.resources
    result: Bools = np.ones(overlay.snapshot.nodes.size, dtype=np.bool_)
    for name, amount in pod_set.shape.requests:
        if amount <= 0 or not is_extended_resource(name):
            continue
        has = state.allocatable[:, resources.column(name)] > 0
        result &= has | _creates_instances(overlay) if is_made_on_demand(pod_set.shape, name) else has
    if pod_set.shape.gpu is not None:
        result &= state.node_info[:, DEV_END] > state.node_info[:, DEV_FIRST]
    return result


def _creates_instances(overlay: Overlay) -> Bools:
    """By node, whether it creates MIG instances on demand."""
    state = overlay.state
    sums = np.concatenate([[0], np.cumsum(state.device_info[:, GEOMETRY] >= 0)])
    created: Bools = sums[state.node_info[:, DEV_END]] > sums[state.node_info[:, DEV_FIRST]]
    return created


def is_unknown_resource(overlay: Overlay, pod_set: PendingPodSet) -> bool:
    """Whether no node advertises one of the requested resources."""
    total, resources = overlay.state.allocatable, overlay.snapshot.resources
    names = [name for name, amount in pod_set.shape.requests if amount > 0 and is_extended_resource(name)]
    can_make = bool((overlay.state.device_info[:, GEOMETRY] >= 0).any())
    advertised = [name for name in names if not (can_make and is_made_on_demand(pod_set.shape, name))]
    columns = [resources.column(name) for name in advertised]
    return any(not total[:, column].any() for column in columns)


def is_made_on_demand(shape: Shape, resource: str) -> bool:
    """Whether nodes may create the resource when it is needed: MIG instances are not advertised before that."""
    gpu = shape.gpu
    return gpu is not None and bool(gpu.profile) and resource.startswith(MIG_RESOURCE_PREFIX)
