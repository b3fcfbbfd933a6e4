"""Finds running workloads whose end would let a held workload start, and when they end.

`advisor.Advisor` calls `find_relief`. Where a start is planned, these are the workloads on which the plan rests.
Otherwise they are as few running workloads as a greedy search finds: on the nodes where fewest have to end, or of the
users of the quota that is lacking. The result is checked by a dry run, and workloads without which it starts as well
are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
from windlass.queueing.quota_node import FlavorResource, QuotaNode

UNKNOWN_OTHERS_AHEAD = "start time unknown: other workloads wait ahead of it for the same capacity"
MAX_NODES = 512
"""Nodes that are looked at, those that lack least first."""
MAX_DOMAINS = 64
MAX_TRIED = 8
"""Workloads that are removed one at a time, to find one that conflicts by an inter-pod rule."""
MAX_QUOTA_USERS = 24
"""Users of quota that are removed, one after the other, until quota suffices."""


def find_relief(held: HeldWorkload) -> Relief | None:
    basis = held.state.basis.get(held.piece.key)
    if basis:
        return _make_relief(held, basis)
    if held.lacks_quota:
        return _quota_relief(held)
    return _capacity_relief(held)


def _make_relief(held: HeldWorkload, keys: Iterable[str]) -> Relief | None:
    """The relief by these workloads, with their ends as far as they are known; None where none of them runs."""
    own = workload_key(held.piece.key)
    present = {
        occupant.workload.key: occupant
        for occupant in held.state.running()
        if workload_key(occupant.workload.key) != own
    }
    found = [present[key] for key in dict.fromkeys(keys) if key in present]
    if not found:
        return None
    count_by_queue: dict[str, int] = {}
    for key, occupant in {workload_key(occupant.workload.key): occupant for occupant in found}.items():
        queue = occupant.queue_usage[0] if occupant.queue_usage is not None else f"{key.partition('/')[0]}/"
        count_by_queue[queue] = count_by_queue.get(queue, 0) + 1
    names = tuple(dict.fromkeys(workload_key(occupant.workload.key) for occupant in found))
    ends = [occupant.end for occupant in found]
    known_ends = [end for end in ends if end is not None]
    if len(known_ends) == len(ends):
        settings = held.state.occupancy.settings
        estimated = any(run_estimate_of(occupant.workload, settings) is not None for occupant in found)
        basis = "by run-time limits" + (" and earlier runs of their queues" if estimated else "")
        return Relief(len(names), count_by_queue, names, max(known_ends), basis)
    if len(names) == 1:
        basis = "end time unknown: no run-time limit"
    else:
        basis = f"end times unknown: {'not all have' if known_ends else 'no'} run-time limits"
    return Relief(len(names), count_by_queue, names, None, basis)


# Quota


def _quota_relief(held: HeldWorkload) -> Relief | None:
    """Users of the lacking quota, until it suffices without them: those of its own queue first, then by amount."""
    node = held.state.occupancy.cluster_queue_of(held.piece)
    if node is None:
        return None
    cells = quota_cells(held, node)
    users = [
        occupant for occupant in held.state.running() if _uses_quota(occupant, cells) and _may_be_named(held, occupant)
    ]
    in_tree = [occupant for occupant in users if _is_in_cohort_tree(held, occupant, node)]
    in_tree.sort(key=lambda occupant: _holder_rank(occupant, node.name, cells))
    ended: list[str] = []
    for occupant in in_tree[:MAX_QUOTA_USERS]:
        ended.append(occupant.workload.key)
        if held.dry_runs.choices(held.piece, ended) is None:
            continue
        # Quota suffices; a place may still be lacking, and those that end later may leave one.
        if held.dry_runs.would_start(held.piece, ended, ignore_plans=True):
            return _relief_without_overtaking(held, ended)
    return None


def _may_be_named(held: HeldWorkload, occupant: Occupant) -> bool:
    """Not its own pods that run already, and nothing that is about to end anyway."""
    workload = occupant.workload
    return not workload.evicting and workload_key(workload.key) != workload_key(held.piece.key)


def _without_bystanders(held: HeldWorkload, keys: Sequence[str]) -> list[str]:
    """Without those that may go on running, the last first; as far as the budget of dry runs allows."""
    kept = list(keys)
    for key in reversed(keys[:MAX_TRIED]):
        rest = [other for other in kept if other != key]
        if rest and held.dry_runs.would_start(held.piece, rest, ignore_plans=True):
            kept = rest
    return kept


def _relief_without_overtaking(held: HeldWorkload, ended: Sequence[str]) -> Relief | None:
    """The relief, without a time where other workloads wait ahead of it for the same capacity."""
    ended = _without_bystanders(held, ended)
    relief = _make_relief(held, ended)
    if relief is None or held.dry_runs.would_start(held.piece, ended):
        return relief
    if not held.dry_runs.would_start(held.piece, ended, ignore_plans=True):
        return relief
    return replace(relief, at=None, basis=UNKNOWN_OTHERS_AHEAD)


def quota_cells(held: HeldWorkload, node: QuotaNode) -> frozenset[FlavorResource]:
    """The quota that it would use; all of its queue where no flavor suits it."""
    assignment = held.dry_runs.assignment(held.piece)
    return frozenset(assignment.usage if assignment is not None else ()) or frozenset(
        (quotas.flavor, name)
        for group in node.spec.resource_groups
        for quotas in group.flavors
        for name in group.resources
    )


def _uses_quota(occupant: Occupant, cells: Collection[FlavorResource]) -> bool:
    return occupant.queue_usage is not None and any(occupant.queue_usage[1].get(cell) for cell in cells)


def _is_in_cohort_tree(held: HeldWorkload, occupant: Occupant, node: QuotaNode) -> bool:
    """Whether the occupant is in the same cohort tree, so that its quota can be lent to the queue."""
    assert occupant.queue_usage is not None
    queue = held.state.occupancy.quota.active_queue(occupant.queue_usage[0])
    return queue is not None and queue.root is node.root


def _holder_rank(occupant: Occupant, queue: str, cells: Collection[FlavorResource]) -> tuple[object, ...]:
    assert occupant.queue_usage is not None
    amount = max(occupant.queue_usage[1].get(cell, 0) for cell in cells)
    end = occupant.end
    return (occupant.queue_usage[0] != queue, -amount, end is None, end or 0, occupant.workload.key)


# Capacity


def _capacity_relief(held: HeldWorkload) -> Relief | None:
    """The domain in which the fewest workloads have to end for all pod sets to fit."""
    occupants = _occupants_by_node(held)
    best: list[str] | None = None
    for domain in _domains(held)[:MAX_DOMAINS]:
        ended: dict[str, None] = {}
        for index in range(len(held.pod_sets)):
            keys = _workloads_to_end(held, index, domain, occupants, ended)
            if keys is None:
                break
            ended.update(dict.fromkeys(keys))
        else:
            if ended and (best is None or len(ended) < len(best)):
                best = list(ended)
    if best is None:
        best = _inter_pod_relief(held, occupants)
        return None if best is None else _make_relief(held, best)
    if not held.dry_runs.would_start(held.piece, best, ignore_plans=True):
        return None
    return _relief_without_overtaking(held, best)


def _inter_pod_relief(held: HeldWorkload, occupants: OccupantsByNode) -> list[str] | None:
    """Where inter-pod rules exclude it, and capacity suffices: the one workload without which it would start."""
    if not any(held.state.overlay.has_inter_pod_constraints(part.pod) for part in held.pod_sets):
        return None
    keys = dict.fromkeys(key for node in sorted(occupants) for key, _ in occupants[node])
    tried = (key for key in list(keys)[:MAX_TRIED] if held.dry_runs.would_start(held.piece, [key]))
    found = next(tried, None)
    return None if found is None else [found]


def _domains(held: HeldWorkload) -> Sequence[Bools | None]:
    """The domains of a required topology level, as sets of nodes; None stands for all nodes."""
    for pod_set in held.pod_sets:
        topology = pod_set.topology
        if held.tree is not None and topology is not None and topology.mode == "required":
            return held.tree.domains(topology.level, held.state.overlay.snapshot.nodes.size)
    return (None,)


OccupantsByNode = dict[int, list[tuple[str, Ints]]]
"""Node → the workloads that run there, and what each would free."""


def _occupants_by_node(held: HeldWorkload) -> OccupantsByNode:
    occupancy = held.state.occupancy
    found: OccupantsByNode = {}
    for occupant in held.state.running():
        if _may_be_named(held, occupant):
            rows, amounts = occupancy.forecast.held_by_workload(occupant.workload.key)
            for position, node in enumerate(rows.tolist()):
                found.setdefault(node, []).append((occupant.workload.key, amounts[position]))
    return found


def _workloads_to_end(
    held: HeldWorkload, index: int, domain: Bools | None, occupants: OccupantsByNode, ended: dict[str, None]
) -> list[str] | None:
    """The workloads that have to end, beside those in `ended`, for all pods of a set to fit in the domain; None where
    no such set was found."""
    pod_set, feasibility, occupancy = held.pod_sets[index], held.feasibility(index), held.state.occupancy
    inside = nodes_limited_by_capacity(held.state.overlay, feasibility.row)
    if domain is not None and pod_set.topology is not None:
        inside = inside & domain
    missing = pod_set.count - int(feasibility.pods_per_node[inside].sum())
    if missing <= 0:
        return []
    # Each candidate node has to take one pod more than it takes now; nodes that lack least come first.
    need = occupancy.forecast.row_request(feasibility.row)
    free = occupancy.free(occupancy.now)
    lacking = np.maximum(0, need - free).astype(np.float64) / np.maximum(1, need)
    order = np.lexsort((np.arange(len(lacking)), lacking.max(axis=1)))
    candidates: list[tuple[int, int, list[str]]] = []
    for node in [node for node in order.tolist() if inside[node]][:MAX_NODES]:
        left = free[node] - need * int(feasibility.pods_per_node[node])
        keys = _fewest_on_node(left, need, occupants.get(node, []), ended)
        if keys is not None:
            candidates.append((len(keys), node, keys))
    if len(candidates) < missing:
        return None
    return [key for _, _, keys in sorted(candidates)[:missing] for key in keys]


def _fewest_on_node(
    free: Ints, need: Ints, occupants: Sequence[tuple[str, Ints]], ended: dict[str, None]
) -> list[str] | None:
    """The workloads that hold most of what is lacking, until one more pod fits; None where it never does."""
    left = free.copy()
    for key, amounts in occupants:
        if key in ended:
            left += amounts
    remaining = [(key, amounts) for key, amounts in occupants if key not in ended]
    keys: list[str] = []
    while (left < need).any():
        lacking = left < need
        helpful = [(key, amounts) for key, amounts in remaining if (amounts[lacking] > 0).any()]
        if not helpful:
            return None
        key, amounts = max(helpful, key=lambda occupant: (int(occupant[1][lacking].sum()), occupant[0]))
        remaining = [occupant for occupant in remaining if occupant[0] != key]
        left += amounts
        keys.append(key)
    return keys
