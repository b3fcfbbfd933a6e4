"""Slices that lost members, completed where they are, while the rest of the set stays where it is.

`placement.gang_domains` asks for pods that join others of their set. A new pod of a set in slices can't go just
anywhere in the domain: it has to make the slice whole that lacks it, or be part of a new one
(`topology.replacement`).
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
    """Places for the pods of these parts. `beside` tells, part by part, how many pods of the set are on which node."""
    before = overlay.checkpoint()
    places: list[PodPlacement] = []
    for i in sliced:
        part = pod_sets[i]
        row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
        overlay.refresh(row)
        room = OverlayCapacity(overlay, [part], [row])
        kept = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
        for node, pods in existing[i].items():
            kept[node] = pods
        assert part.tree is not None, "slices are of a tree"
        ask = TopologyPodSetRequest(
            part.name, part.count, part.topology, overlay.table.cells.score[row].copy()
        )
        found = plan_replacement(part.tree, ask, 0, kept, room, part.topology_name)
        if isinstance(found, TopologyFailure):
            overlay.rollback(before)
            return PlacementFailure(found.pod_set, found.message)
        places += [msgspec.structs.replace(place, pod_set=i) for place in room.placements]
    return places
