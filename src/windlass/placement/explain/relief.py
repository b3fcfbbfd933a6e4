"""What would free what a workload lacks: whose end, how many they are, and when that will be.

Where a start is planned, those whose end the plan rests on. Otherwise the fewest running workloads that were found
which would have to end: on the nodes where the fewest stand in the way, or of those who hold the quota. What is found
is tried before it is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.model.verdict import Relief
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.pod_set_feasibility import nodes_limited_by_capacity
from windlass.placement.timeplan.occupancy import Occupant
from windlass.placement.timeplan.run_limits import run_estimate_of
from windlass.placement.workload_pieces import workload_key
from windlass.queueing.quota_node import QuotaNode

UNKNOWN_OTHERS_AHEAD = "when is not known: others wait ahead of it for the same"
MAX_NODES = 512
"""Nodes that are looked at, those that lack least first."""
MAX_DOMAINS = 64
MAX_TRIED = 8
"""Neighbours whose going is tried, one at a time."""
MAX_HOLDERS = 24
"""Holders of quota that are counted up."""


def find_relief(held: HeldWorkload) -> Relief | None:
    basis = held.state.basis.get(held.piece.key)
    if basis:
        return _told(held, basis)
    if held.lacks_quota:
        return _of_quota(held)
    return _of_room(held)


def _told(case: HeldWorkload, keys: Iterable[str]) -> Relief | None:
    """The workloads by name, with what is known of their ends."""
    present = {one.workload.key: one for one in case.state.running()}
    found = [present[key] for key in dict.fromkeys(keys) if key in present]
    if not found:
        return None
    of: dict[str, int] = {}
    for key, one in {workload_key(one.workload.key): one for one in found}.items():
        queue = one.queue_usage[0] if one.queue_usage is not None else f"{key.partition('/')[0]}/"
        of[queue] = of.get(queue, 0) + 1
    names = tuple(dict.fromkeys(workload_key(one.workload.key) for one in found))
    ends = [one.end for one in found]
    known = [end for end in ends if end is not None]
    if len(known) == len(ends):
        settings = case.state.occupancy.settings
        usual = any(run_estimate_of(one.workload, settings) is not None for one in found)
        at, basis = max(known), "by run-time limits" + (" and what is usual in their queues" if usual else "")
    else:
        at, basis = (
            None,
            "when is not known: no run-time limit bounds " + ("all of them" if known else "them"),
        )
        basis = basis if len(names) > 1 else "when is not known: no run-time limit bounds it"
    return Relief(len(names), of, names, at, basis)


# Quota


def _of_quota(case: HeldWorkload) -> Relief | None:
    """Those who hold most of what it lacks, its own queue first, as many as it takes."""
    node = case.state.occupancy.cluster_queue_of(case.piece)
    assignment = case.dry_runs.assignment(case.piece)
    if node is None or assignment is None:
        return None
    cells = set(assignment.usage) or {
        (quotas.flavor, name)
        for group in node.spec.resource_groups
        for quotas in group.flavors
        for name in group.resources
    }
    holders = [one for one in case.state.running() if one.queue_usage is not None and _holds(one, cells)]
    near = [one for one in holders if _is_near(case, one, node)]
    near.sort(key=lambda one: _holder_rank(one, node.name, cells))
    gone: list[str] = []
    for one in near[:MAX_HOLDERS]:
        gone.append(one.workload.key)
        if case.dry_runs.choices(case.piece, gone) is not None:
            return _in_turn(case, gone)
    return None


def _in_turn(case: HeldWorkload, gone: Sequence[str]) -> Relief | None:
    """Those whose end would do; without a time where others wait ahead of it for the same."""
    told = _told(case, gone)
    if told is None or case.dry_runs.would_start(case.piece, gone):
        return told
    if not case.dry_runs.would_start(case.piece, gone, ignore_plans=True):
        return told
    return replace(told, at=None, basis=UNKNOWN_OTHERS_AHEAD)


def _holds(one: Occupant, cells: set[tuple[str, str]]) -> bool:
    return one.queue_usage is not None and any(one.queue_usage[1].get(cell) for cell in cells)


def _is_near(case: HeldWorkload, one: Occupant, node: QuotaNode) -> bool:
    """In the same queue or the same cohort tree."""
    assert one.queue_usage is not None
    other = case.state.occupancy.quota.active_queue(one.queue_usage[0])
    return other is not None and other.root is node.root


def _holder_rank(one: Occupant, queue: str, cells: set[tuple[str, str]]) -> tuple[object, ...]:
    assert one.queue_usage is not None
    held = max(one.queue_usage[1].get(cell, 0) for cell in cells)
    return (one.queue_usage[0] != queue, -held, one.end is None, one.end or 0, one.workload.key)


# Room


def _of_room(case: HeldWorkload) -> Relief | None:
    """For each part that lacks places, the nodes that are cleared by the fewest."""
    stands = _who_stands_where(case)
    best: list[str] | None = None
    for domain in _domains(case)[:MAX_DOMAINS]:
        gone: dict[str, None] = {}
        for index in range(len(case.pod_sets)):
            found = _clear(case, index, domain, stands, gone)
            if found is None:
                break
            gone.update(dict.fromkeys(found))
        else:
            if gone and (best is None or len(gone) < len(best)):
                best = list(gone)
    if best is None:
        best = _of_neighbours(case, stands)
        return None if best is None else _told(case, best)
    if not case.dry_runs.would_start(case.piece, best, ignore_plans=True):
        return None
    return _in_turn(case, best)


def _of_neighbours(case: HeldWorkload, stands: OccupantsByNode) -> list[str] | None:
    """Where rules between pods keep it off, and not a lack of room: the one who has to go, if one does."""
    if not any(case.state.overlay.has_inter_pod_constraints(part.pod) for part in case.pod_sets):
        return None
    keys = dict.fromkeys(key for node in sorted(stands) for key, _ in stands[node])
    tried = (key for key in list(keys)[:MAX_TRIED] if case.dry_runs.would_start(case.piece, [key]))
    found = next(tried, None)
    return None if found is None else [found]


def _domains(case: HeldWorkload) -> Sequence[Bools | None]:
    """The sets of nodes that a required topology leaves to choose from."""
    for part in case.pod_sets:
        wanted = part.topology
        if case.tree is not None and wanted is not None and wanted.mode == "required":
            return case.tree.domains(wanted.level, case.state.overlay.snapshot.nodes.size)
    return (None,)


OccupantsByNode = dict[int, list[tuple[str, Ints]]]
"""Node → who stands there, and what each would give back."""


def _who_stands_where(case: HeldWorkload) -> OccupantsByNode:
    room = case.state.occupancy
    found: OccupantsByNode = {}
    for one in case.state.running():
        if not one.workload.evicting:
            rows, held = room.forecast.held_by_workload(one.workload.key)
            for at, node in enumerate(rows.tolist()):
                found.setdefault(node, []).append((one.workload.key, held[at]))
    return found


def _clear(
    case: HeldWorkload, index: int, domain: Bools | None, stands: OccupantsByNode, gone: dict[str, None]
) -> list[str] | None:
    """Who has to go for the part to have all its places in the domain; None where that is not enough."""
    part, space, room = case.pod_sets[index], case.feasibility(index), case.state.occupancy
    inside = nodes_limited_by_capacity(case.state.overlay, space.row)
    if domain is not None and part.topology is not None:
        inside = inside & domain
    missing = part.count - int(space.pods_per_node[inside].sum())
    if missing <= 0:
        return []
    need = room.forecast.row_request(space.row)
    free = room.free(room.now)
    lack = np.maximum(0, need - free).astype(np.float64) / np.maximum(1, need)
    order = np.lexsort((np.arange(len(lack)), lack.max(axis=1)))
    ways: list[tuple[int, int, list[str]]] = []
    for node in [at for at in order.tolist() if inside[at]][:MAX_NODES]:
        left = free[node] - need * int(space.pods_per_node[node])
        leave = _fewest(left, need, stands.get(node, []), gone)
        if leave is not None:
            ways.append((len(leave), node, leave))
    if len(ways) < missing:
        return None
    return [key for _, _, keys in sorted(ways)[:missing] for key in keys]


def _fewest(
    free: Ints, need: Ints, standing: Sequence[tuple[str, Ints]], gone: dict[str, None]
) -> list[str] | None:
    """The largest holders first, until one more pod fits."""
    left = free.copy()
    for key, held in standing:
        if key in gone:
            left += held
    short = [(key, held) for key, held in standing if key not in gone]
    leave: list[str] = []
    while (left < need).any():
        lacking = left < need
        helpful = [(key, held) for key, held in short if (held[lacking] > 0).any()]
        if not helpful:
            return None
        key, held = max(helpful, key=lambda one: (int(one[1][lacking].sum()), one[0]))
        short = [one for one in short if one[0] != key]
        left += held
        leave.append(key)
    return leave
