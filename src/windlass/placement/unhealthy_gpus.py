"""Names the unhealthy GPUs without which pods would fit on a node.

`late_pods` asks for a workload that lost a member, and `explain` for every hold that unhealthy GPUs have a part in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_state import DEV_FIRST, HEALTHY
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.obstacle import UNHEALTHY, Obstacle
from windlass.model.reasons import FIRST_RESOURCE_BIT, WHY_GPU_DEVICE_ROOM, WHY_GPU_UNHEALTHY
from windlass.model.repair_state import node_repair
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay

MAX_NAMED = 3


def find_unhealthy_gpus(overlay: Overlay, pod_sets: Sequence[PendingPodSet]) -> tuple[Obstacle, ...]:
    """One obstacle for all nodes that would take a pod if their GPUs were healthy; empty where there are none."""
    nodes: dict[int, None] = {}
    for pod_set in pod_sets if (overlay.state.device_info[:, HEALTHY] == 0).any() else ():
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        why = overlay.reasons(pod_set.pod, row)
        unhealthy = (why & np.uint64(WHY_GPU_UNHEALTHY) != 0) & (why & ~np.uint64(_gpu_bits(pod_set)) == 0)
        nodes |= dict.fromkeys(np.flatnonzero(unhealthy).tolist())
    if not nodes:
        return ()
    names = overlay.snapshot.nodes.names
    first = list(nodes)[:MAX_NAMED]
    more = f"; so would {len(nodes) - MAX_NAMED} more nodes" if len(nodes) > MAX_NAMED else ""
    text = "; ".join(f"node {names[node]} would take a pod if its {_gpus_of(overlay, node)} healthy" for node in first)
    text += more
    repairs = [words for node in first if (words := _repair_of(overlay, node))]
    text += f" ({'; '.join(repairs)})" if repairs else ""
    return (Obstacle(UNHEALTHY, text, text, node=names[next(iter(nodes))]),)


def _gpu_bits(pod_set: PendingPodSet) -> int:
    """Reasons that unhealthy GPUs bring about."""
    counted = (place for place, (name, _) in enumerate(pod_set.shape.requests) if name == GPU_RESOURCE)
    return WHY_GPU_UNHEALTHY | WHY_GPU_DEVICE_ROOM | sum(1 << FIRST_RESOURCE_BIT + place for place in counted)


def _repair_of(overlay: Overlay, node: int) -> str:
    found = overlay.snapshot.nodes.objects[node]
    return node_repair(found.name, found.metadata.annotations, len(overlay.state.devices(node)))


def _gpus_of(overlay: Overlay, node: int) -> str:
    first = int(overlay.state.node_info[node, DEV_FIRST])
    devices = overlay.state.devices(node)
    numbers = [str(row - first) for row in devices if not overlay.state.device_info[row, HEALTHY]]
    return f"GPU {numbers[0]} were" if len(numbers) == 1 else f"GPUs {', '.join(numbers)} were"
