"""Could a workload have room at all if certain others went? Sums that reject the impossible before any search.

`placement.workload_placer` answers `queueing.preemption_common` with it. Only what holds whatever the rest of the
rules say is looked at: the resources that a node counts, what would be given back there, and the nodes that are
closed to the pods for other reasons. A yes promises nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from windlass.cluster.node_state import BLOCKED, Ints
from windlass.cluster.pod_table import UNREADABLE
from windlass.placement.gang import PendingPodSet
from windlass.placement.kernel_arrays import FIRST_REQUEST, MIG_REQUEST, REQUEST_COUNT
from windlass.placement.overlay import Overlay
from windlass.placement.placed_workloads import WorkloadPods

UNLIMITED = 1 << 31


def could_fit_without(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], removed: Iterable[WorkloadPods]
) -> bool:
    """False only where some part has no room even with all of these gone."""
    free = _free_without(overlay, removed)
    return free is None or all(_has_room(overlay, part, free) for part in pod_sets if part.count)


def _free_without(overlay: Overlay, gone: Iterable[WorkloadPods]) -> Ints | None:
    """By node, what is free without them; None where nobody knows what one of them holds."""
    free = overlay.state.free.copy()
    rows: list[int] = []
    for seats in gone:
        rows += seats.running_rows
        for place in seats.placed:
            free[place.assumed.node] += _asked(overlay, place.assumed.row)
    pods, snapshot = overlay.snapshot.pods, overlay.snapshot
    running = np.array(rows, dtype=np.int64)
    shapes, which = np.unique(pods.shape[running], return_inverse=True)
    if UNREADABLE in shapes:
        return None
    held = np.zeros((len(shapes), free.shape[1]), dtype=np.int64)
    for kind, number in enumerate(shapes.tolist()):
        for name, amount in snapshot.shapes[number].requests:
            held[kind, snapshot.resources.column(name)] += amount
    np.add.at(free, pods.node[running], held[which.reshape(-1)])
    return free


def _has_room(overlay: Overlay, part: PendingPodSet, free: Ints) -> bool:
    row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
    is_open = (overlay.table.cells.static[row] == 0) & (overlay.state.node_info[:, BLOCKED] == 0)
    counts: Ints = np.where(is_open, UNLIMITED, 0)
    asked = _asked(overlay, row)
    for column in np.flatnonzero(asked).tolist():
        np.minimum(counts, free[:, column] // asked[column], out=counts)
    np.maximum(counts, 0, out=counts)
    wanted = part.topology
    if part.tree is None or wanted is None or wanted.mode != "required":
        return int(counts.sum()) >= part.count
    return any(int(counts[mask].sum()) >= part.count for mask in part.tree.domains(wanted.level, len(counts)))


def _asked(overlay: Overlay, row: int) -> Ints:
    """What a pod of the table's row takes of the resources that every node counts: instances of GPUs are made on
    demand on some."""
    shape, amounts = overlay.table.shapes[row], np.zeros(overlay.state.free.shape[1], dtype=np.int64)
    for j in range(int(shape[REQUEST_COUNT])):
        if j != shape[MIG_REQUEST]:
            amounts[shape[FIRST_REQUEST + 2 * j]] += shape[FIRST_REQUEST + 2 * j + 1]
    return amounts
