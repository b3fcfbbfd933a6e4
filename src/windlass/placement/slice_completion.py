"""Completes topology slices that have lost pods, next to the pods that remain.

`placement.gang_domains` calls it for pods that join existing ones of their set. Such a pod can't go anywhere in the
domain: it has to complete the slice that lacks it, or be part of a new slice (`topology.replacement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass.placement.gang import OverlayCapacity, PendingPodSet, PlacementFailure, PodPlacement
from windlass.placement.overlay import Overlay
from windlass.placement.topology import TopologyFailure, TopologyPodSetRequest
from windlass.placement.topology.replacement import plan_replacement


def is_sliced(pod_set: PendingPodSet) -> bool:
    return bool(
        pod_set.count
        and pod_set.tree is not None
        and pod_set.topology is not None
        and pod_set.topology.slice_size
    )


def complete_slices(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    sliced: Sequence[int],
    existing: Sequence[Mapping[int, int]],
) -> list[PodPlacement] | PlacementFailure:
    """Assume the pods of the pod sets in `sliced`. `existing`: for each pod set, node → its pods there already."""
    before = overlay.checkpoint()
    placements: list[PodPlacement] = []
    for i in sliced:
        pod_set = pod_sets[i]
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        overlay.refresh(row)
        capacity = OverlayCapacity(overlay, [pod_set], [row])
        existing_pods = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
        for node, pods in existing[i].items():
            existing_pods[node] = pods
        assert pod_set.tree is not None, "slices need a tree"
        request = TopologyPodSetRequest(
            pod_set.name, pod_set.count, pod_set.topology, overlay.table.cells.score[row].copy()
        )
        found = plan_replacement(pod_set.tree, request, 0, existing_pods, capacity, pod_set.topology_name)
        if isinstance(found, TopologyFailure):
            overlay.rollback(before)
            return PlacementFailure(found.pod_set, found.message)
        placements += [msgspec.structs.replace(placement, pod_set=i) for placement in capacity.placements]
    return placements
