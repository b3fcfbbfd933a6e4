"""What all nodes say to one kind of pod, as the groups that `cause` weighs: who refuses for what, who could hold it.

`advisor` asks on the decision's own overlay, `diagnose` about pods that don't exist yet on one of its own. Nothing is
tried and nothing placed: a few passes over the columns, once for all pods of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.state import DEV_END, DEV_FIRST, GEOMETRY, Ints
from windlass.model.reasons import (
    FIRST_RESOURCE_BIT,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_ISLAND,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
    WHY_TAINT,
)
from windlass.model.requests import is_extended
from windlass.model.taints import HARD_EFFECTS, taint_code, tolerates
from windlass.placement.empty import EmptyCluster
from windlass.placement.explain.cause import OF_GPUS, TOO_LARGE, NodeGroup, cause_of, rank
from windlass.placement.explain.codes import GPU_FRAGMENTED, GPU_FULL, GpuSums
from windlass.placement.explain.space import Space
from windlass.placement.gang import Part
from windlass.placement.overlay import Overlay
from windlass.placement.verdicts import bits_of, reason_of

NO_SUCH_RESOURCE = "RESOURCE_NAME_MISMATCH"
OF_ROOM = WHY_GPU_DEVICE_ROOM | WHY_MIG_NO_ROOM | WHY_GPU_ISLAND
TOO_SMALL = {
    "cpu": "CPU_MEM_INSUFFICIENT",
    "memory": "CPU_MEM_INSUFFICIENT",
    "pods": "POD_COUNT_LIMIT",
    "ephemeral-storage": "EPHEMERAL_STORAGE",
}
"""Resource of which a node has too little even when it is empty → code; of devices, the request is too large."""


def cause_on_nodes(
    overlay: Overlay, parts: Sequence[Part], among: Bools, literal: str, empty: EmptyCluster
) -> str:
    """The cause of a hold of these pods, on the nodes as they are; `literal` is what the decision came to."""
    part = _tightest(overlay, [part for part in parts if part.count])
    if part is None:
        return literal
    if _is_unknown(overlay, part):
        return NO_SUCH_RESOURCE
    if not _has_devices(overlay, part).any():
        return TOO_LARGE  # each of its devices is somewhere, and no node has all of them
    found = cause_of(literal, part.count, node_groups(overlay, part, among, empty))
    is_in_pieces = found == GPU_FULL and GpuSums(overlay, parts, among).are_fragmented
    return GPU_FRAGMENTED if is_in_pieces else found


def _tightest(overlay: Overlay, parts: Sequence[Part]) -> Part | None:
    """The part that lacks most places now; of equals the first."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return max(parts, key=lambda part: part.count - Space(overlay, part).fitting)


def node_groups(overlay: Overlay, part: Part, among: Bools, empty: EmptyCluster) -> list[NodeGroup]:
    """`among`: the nodes that count at all, such as those of its queue's flavors."""
    row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
    why, holds, small = overlay.reasons(part.pod, row), empty.sizes(part), _too_small(overlay, part)
    taints = np.where(why & np.uint64(WHY_TAINT), overlay.snapshot.facts.taint_set_codes, -1)
    candidates = np.flatnonzero(among & _has_devices(overlay, part))
    columns = np.stack([why.view(np.int64), taints.astype(np.int64), small], axis=1)[candidates]
    if not len(columns):
        return []
    keys, which = np.unique(columns, axis=0, return_inverse=True)
    pods = np.bincount(which.reshape(-1), holds[candidates]).astype(np.int64)
    return [
        _group(overlay, part, (int(np.uint64(key[0])), int(key[1]), int(key[2])), held)
        for key, held in zip(keys, pods.tolist(), strict=True)
    ]


def _group(overlay: Overlay, part: Part, key: tuple[int, int, int], holds: int) -> NodeGroup:
    """`key`: the mask of reasons, the set of taints, the resources of which the nodes are too small."""
    why, taints, small = key
    fixed, lacks = set[str](), set[str]()
    if why & WHY_GPU_UNHEALTHY:  # a GPU that is repaired counts again
        fixed.add("DEVICE_UNHEALTHY")
        small, holds = 0, max(1, holds)
    for bit in bits_of(why):
        if WHY_GPU_UNHEALTHY >> bit & 1:
            continue
        if bit >= FIRST_RESOURCE_BIT or OF_ROOM >> bit & 1:
            lacks.add(reason_of(part.shape, bit).code)
        elif WHY_TAINT >> bit & 1:
            fixed |= _taint_codes(overlay, part, taints)
        else:
            fixed.add(reason_of(part.shape, bit).code)
    sizes = {TOO_SMALL.get(part.shape.requests[place][0], TOO_LARGE) for place in bits_of(small)}
    if not holds and not small:
        sizes.add(TOO_LARGE)  # its GPUs are too few, or of another kind
    lacks -= sizes | (OF_GPUS if TOO_LARGE in sizes else set())  # that follows from it
    fixed |= sizes
    return NodeGroup(tuple(sorted(fixed, key=rank)), tuple(sorted(lacks, key=rank)), max(1, holds))


def _taint_codes(overlay: Overlay, part: Part, taints: int) -> set[str]:
    tolerations = part.pod.spec.tolerations
    hard = [one for one in overlay.snapshot.facts.taint_sets[taints] if one.effect in HARD_EFFECTS]
    return {taint_code(one.key) for one in hard if not tolerates(tolerations, one)}


def _too_small(overlay: Overlay, part: Part) -> Ints:
    """By node, a bit for each resource of the request that the empty node has too little of."""
    total, resources = overlay.state.total, overlay.snapshot.resources
    found: Ints = np.zeros(overlay.snapshot.facts.size, dtype=np.int64)
    for place, (name, amount) in enumerate(part.shape.requests):
        if _is_made(part, name) or resources.column(name) >= total.shape[1]:
            continue
        found |= (total[:, resources.column(name)] < amount).astype(np.int64) << place
    return found


def _has_devices(overlay: Overlay, part: Part) -> Bools:
    """By node, whether it has some of every device that the part asks for."""
    state, resources = overlay.state, overlay.snapshot.resources
    found: Bools = np.ones(overlay.snapshot.facts.size, dtype=np.bool_)
    for name, amount in part.shape.requests:
        if amount <= 0 or not is_extended(name) or _is_made(part, name):
            continue
        column = resources.column(name)
        found &= state.total[:, column] > 0 if column < state.total.shape[1] else False
    if part.shape.gpu is not None:
        found &= state.node[:, DEV_END] > state.node[:, DEV_FIRST]
    return found


def _is_unknown(overlay: Overlay, part: Part) -> bool:
    """Whether no node advertises a resource that the part asks for."""
    total, resources = overlay.state.total, overlay.snapshot.resources
    names = [name for name, amount in part.shape.requests if amount > 0 and is_extended(name)]
    can_make = bool((overlay.state.device[:, GEOMETRY] >= 0).any())
    columns = [resources.column(name) for name in names if not (can_make and _is_made(part, name))]
    return any(column >= total.shape[1] or not total[:, column].any() for column in columns)


def _is_made(part: Part, resource: str) -> bool:
    """MIG instances are made as they are needed on some nodes, and are not advertised there before."""
    gpu = part.shape.gpu
    return gpu is not None and bool(gpu.profile) and resource.startswith("nvidia.com/mig-")
