"""What all nodes say to one kind of pod, as the groups that `cause` weighs: who refuses for what, who could hold it.

`advisor` asks on the decision's own overlay, `diagnose` about pods that don't exist yet on one of its own. Nothing is
tried and nothing placed: a few passes over the columns, once for all pods of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import DEV_END, DEV_FIRST, GEOMETRY, Ints
from windlass.model.reasons import (
    FIRST_RESOURCE_BIT,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_ISLAND,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
    WHY_TAINT,
)
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
CAPACITY_BITS = WHY_GPU_DEVICE_ROOM | WHY_MIG_NO_ROOM | WHY_GPU_ISLAND
TOO_SMALL_CODES = {
    "cpu": "CPU_MEM_INSUFFICIENT",
    "memory": "CPU_MEM_INSUFFICIENT",
    "pods": "POD_COUNT_LIMIT",
    "ephemeral-storage": "EPHEMERAL_STORAGE",
}
"""Resource of which a node has too little even when it is empty → code; of devices, the request is too large."""


def find_cause(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    allowed_nodes: Bools,
    reported: str,
    empty: EmptyCluster,
) -> str:
    """The cause of a hold of these pods, on the nodes as they are; `literal` is what the decision came to."""
    part = _tightest(overlay, [part for part in pod_sets if part.count])
    if part is None:
        return reported
    if _is_unknown(overlay, part):
        return NO_SUCH_RESOURCE
    if not _has_devices(overlay, part).any():
        return TOO_LARGE  # each of its devices is somewhere, and no node has all of them
    found = cause_of(reported, part.count, node_groups(overlay, part, allowed_nodes, empty))
    is_in_pieces = found == GPU_FULL and GpuTotals(overlay, pod_sets, allowed_nodes).are_fragmented
    return GPU_FRAGMENTED if is_in_pieces else found


def _tightest(overlay: Overlay, parts: Sequence[PendingPodSet]) -> PendingPodSet | None:
    """The part that lacks most places now; of equals the first."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return max(parts, key=lambda part: part.count - PodSetFeasibility(overlay, part).placeable)


def node_groups(
    overlay: Overlay, pod_set: PendingPodSet, allowed_nodes: Bools, empty: EmptyCluster
) -> list[NodeGroup]:
    """`among`: the nodes that count at all, such as those of its queue's flavors."""
    row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
    why, holds, small = (
        overlay.reasons(pod_set.pod, row),
        empty.pods_per_empty_node_without_rules(pod_set),
        _too_small(overlay, pod_set),
    )
    taints = np.where(why & np.uint64(WHY_TAINT), overlay.snapshot.nodes.taint_set_codes, -1)
    candidates = np.flatnonzero(allowed_nodes & _has_devices(overlay, pod_set))
    columns = np.stack([why.view(np.int64), taints.astype(np.int64), small], axis=1)[candidates]
    if not len(columns):
        return []
    keys, which = np.unique(columns, axis=0, return_inverse=True)
    pods = np.bincount(which.reshape(-1), holds[candidates]).astype(np.int64)
    return [
        _group(overlay, pod_set, (int(np.uint64(key[0])), int(key[1]), int(key[2])), held)
        for key, held in zip(keys, pods.tolist(), strict=True)
    ]


def _group(overlay: Overlay, part: PendingPodSet, key: tuple[int, int, int], holds: int) -> NodeGroup:
    """`key`: the mask of reasons, the set of taints, the resources of which the nodes are too small."""
    why, taints, small = key
    fixed, lacks = set[str](), set[str]()
    if why & WHY_GPU_UNHEALTHY:  # a GPU that is repaired counts again
        fixed.add("DEVICE_UNHEALTHY")
        small, holds = 0, max(1, holds)
    for bit in bits_of(why):
        if WHY_GPU_UNHEALTHY >> bit & 1:
            continue
        if bit >= FIRST_RESOURCE_BIT or CAPACITY_BITS >> bit & 1:
            lacks.add(reason_of(part.shape, bit).code)
        elif WHY_TAINT >> bit & 1:
            fixed |= _taint_codes(overlay, part, taints)
        else:
            fixed.add(reason_of(part.shape, bit).code)
    sizes = {TOO_SMALL_CODES.get(part.shape.requests[place][0], TOO_LARGE) for place in bits_of(small)}
    if not holds and not small:
        sizes.add(TOO_LARGE)  # its GPUs are too few, or of another kind
    lacks -= sizes | (GPU_CODES if TOO_LARGE in sizes else set())  # that follows from it
    fixed |= sizes
    return NodeGroup(
        tuple(sorted(fixed, key=cause_rank)), tuple(sorted(lacks, key=cause_rank)), max(1, holds)
    )


def _taint_codes(overlay: Overlay, part: PendingPodSet, taints: int) -> set[str]:
    tolerations = part.pod.spec.tolerations
    hard = [one for one in overlay.snapshot.nodes.taint_sets[taints] if one.effect in HARD_EFFECTS]
    return {taint_code(one.key) for one in hard if not tolerates(tolerations, one)}


def _too_small(overlay: Overlay, part: PendingPodSet) -> Ints:
    """By node, a bit for each resource of the request that the empty node has too little of."""
    total, resources = overlay.state.allocatable, overlay.snapshot.resources
    found: Ints = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
    for place, (name, amount) in enumerate(part.shape.requests):
        if _is_made(part, name) or resources.column(name) >= total.shape[1]:
            continue
        found |= (total[:, resources.column(name)] < amount).astype(np.int64) << place
    return found


def _has_devices(overlay: Overlay, part: PendingPodSet) -> Bools:
    """By node, whether it has some of every device that the part asks for."""
    state, resources = overlay.state, overlay.snapshot.resources
    found: Bools = np.ones(overlay.snapshot.nodes.size, dtype=np.bool_)
    for name, amount in part.shape.requests:
        if amount <= 0 or not is_extended_resource(name) or _is_made(part, name):
            continue
        column = resources.column(name)
        found &= state.allocatable[:, column] > 0 if column < state.allocatable.shape[1] else False
    if part.shape.gpu is not None:
        found &= state.node_info[:, DEV_END] > state.node_info[:, DEV_FIRST]
    return found


def _is_unknown(overlay: Overlay, part: PendingPodSet) -> bool:
    """Whether no node advertises a resource that the part asks for."""
    total, resources = overlay.state.allocatable, overlay.snapshot.resources
    names = [name for name, amount in part.shape.requests if amount > 0 and is_extended_resource(name)]
    can_make = bool((overlay.state.device_info[:, GEOMETRY] >= 0).any())
    columns = [resources.column(name) for name in names if not (can_make and _is_made(part, name))]
    return any(column >= total.shape[1] or not total[:, column].any() for column in columns)


def _is_made(part: PendingPodSet, resource: str) -> bool:
    """MIG instances are made as they are needed on some nodes, and are not advertised there before."""
    gpu = part.shape.gpu
    return gpu is not None and bool(gpu.profile) and resource.startswith("nvidia.com/mig-")
