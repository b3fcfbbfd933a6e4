"""Whether a workload could fit at all if certain others were removed: a cheap check before any search for victims.

`placement.workload_placer` answers `queueing.preemption_common` and `withdrawn_admissions` with it. It compares the
free resources of each node, with those of the removed pods added, and skips nodes that filters refuse or that are
blocked. False is certain; True promises nothing, since devices and rules between pods are not checked.
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


def could_fit_without(overlay: Overlay, pod_sets: Sequence[PendingPodSet], removed: Iterable[WorkloadPods]) -> bool:
    """False only where a pod set has no capacity even with all of these removed."""
    free = _free_without(overlay, removed)
    # Where what they hold can't be read, only the search itself can tell.
    return free is None or all(_has_room(overlay, pod_set, free) for pod_set in pod_sets if pod_set.count)


def _free_without(overlay: Overlay, removed: Iterable[WorkloadPods]) -> Ints | None:
    """By node and resource, what is free without them; None where the requests of one of them are unreadable."""
    free = overlay.state.free.copy()
    rows: list[int] = []
    for pods_of_workload in removed:
        rows += pods_of_workload.running_rows
        for placement in pods_of_workload.placed:
            free[placement.assumed.node] += requests_of_row(overlay, placement.assumed.row)
    pods, snapshot = overlay.snapshot.pods, overlay.snapshot
    running = np.array(rows, dtype=np.int64)
    shapes, which = np.unique(pods.shape[running], return_inverse=True)
    if UNREADABLE in shapes:
        return None
    held = np.zeros((len(shapes), free.shape[1]), dtype=np.int64)
    for i, number in enumerate(shapes.tolist()):
        for name, amount in snapshot.shapes[number].requests:
            held[i, snapshot.resources.column(name)] += amount
    np.add.at(free, pods.node[running], held[which.reshape(-1)])
    return free


def _has_room(overlay: Overlay, pod_set: PendingPodSet, free: Ints) -> bool:
    row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
    is_open = (overlay.table.static(row) == 0) & (overlay.state.node_info[:, BLOCKED] == 0)
    counts: Ints = np.where(is_open, UNLIMITED, 0)
    requests = requests_of_row(overlay, row)
    for column in np.flatnonzero(requests).tolist():
        np.minimum(counts, free[:, column] // requests[column], out=counts)
    # An over-committed node would make the sum of a domain too small.
    np.maximum(counts, 0, out=counts)
    wanted = pod_set.topology
    if pod_set.tree is None or wanted is None or wanted.mode != "required":
        return int(counts.sum()) >= pod_set.count
    return any(int(counts[mask].sum()) >= pod_set.count for mask in pod_set.tree.domains(wanted.level, len(counts)))


def requests_of_row(overlay: Overlay, row: int) -> Ints:
    """What a pod of the row takes of each resource column, without MIG instances, which some nodes create on demand."""
    shape, amounts = overlay.table.shapes[row], np.zeros(overlay.state.free.shape[1], dtype=np.int64)
    for j in range(int(shape[REQUEST_COUNT])):
        if j != shape[MIG_REQUEST]:
            amounts[shape[FIRST_REQUEST + 2 * j]] += shape[FIRST_REQUEST + 2 * j + 1]
    return amounts
