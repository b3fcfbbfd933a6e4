"""Which domains the pod sets of a workload may use, where the topology search of one pod set can't decide it alone.

`placement.workload_placer` calls `place_in_domains`. Pods that join existing ones of their set (a member above the
minimum, a replacement) stay in the domain where a required request has put the set, and as close as possible to it
under a preferred one. Pod sets of a gang with one request share a domain: the one with the least capacity that fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from windlass.cluster.node_columns import Bools
from windlass.placement.gang import (
    OverlayCapacity,
    PendingPodSet,
    PlacementFailure,
    PodPlacement,
    levels_to_try,
    place_gang,
)
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree, TopologyFailure, TopologyPodSetRequest
from windlass.placement.topology.replacement import plan_replacement


def place_in_domains(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], existing: Sequence[Mapping[int, int]]
) -> list[PodPlacement] | PlacementFailure:
    """As `place_gang`. `existing`: for each pod set, node → pods of the same request that are there already."""
    sliced = [i for i, nodes in enumerate(existing) if nodes and _is_sliced(pod_sets[i])]
    if sliced:
        return _place_with_slices(overlay, pod_sets, sliced, existing)
    joining = [i for i, nodes in enumerate(existing) if nodes and _has_level(pod_sets[i])]
    if joining:
        return _first_that_fits(overlay, _near_existing(overlay, pod_sets, joining, existing))
    shared = [i for i, pod_set in enumerate(pod_sets) if _has_level(pod_set) and _spans_gang(pod_set)]
    if len(shared) > 1 and all(_same_request(pod_sets[i], pod_sets[shared[0]]) for i in shared):
        return _first_that_fits(
            overlay, _in_shared_domain(overlay, pod_sets, shared), _no_domain_failure(pod_sets, shared)
        )
    return place_gang(overlay, pod_sets)


def _place_with_slices(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    sliced: Sequence[int],
    existing: Sequence[Mapping[int, int]],
) -> list[PodPlacement] | PlacementFailure:
    before = overlay.checkpoint()
    found = _complete_slices(overlay, pod_sets, sliced, existing)
    if isinstance(found, PlacementFailure):
        return found
    # With a count of 0 a set is no longer sliced, so that the recursion ends here.
    left = [replace(pod_set, count=0) if i in sliced else pod_set for i, pod_set in enumerate(pod_sets)]
    others = place_in_domains(overlay, left, existing)
    if isinstance(others, PlacementFailure):
        overlay.rollback(before)
        return others
    return [*found, *others]


def _is_sliced(pod_set: PendingPodSet) -> bool:
    topology = pod_set.topology if pod_set.tree is not None else None
    return bool(pod_set.count and topology is not None and topology.slice_size)


def _complete_slices(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    sliced: Sequence[int],
    existing: Sequence[Mapping[int, int]],
) -> list[PodPlacement] | PlacementFailure:
    """Assume the pods of the sets in `sliced`, which have to complete slices that lost pods or be part of new ones."""
    before = overlay.checkpoint()
    placements: list[PodPlacement] = []
    for i in sliced:
        pod_set = pod_sets[i]
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        scores = overlay.table.cells.score[overlay.refresh(row)].copy()
        capacity = OverlayCapacity(overlay, [pod_set], [row])
        existing_pods = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
        for node, pods in existing[i].items():
            existing_pods[node] = pods
        assert pod_set.tree is not None, "slices need a tree"
        request = TopologyPodSetRequest(pod_set.name, pod_set.count, pod_set.topology, scores)
        found = plan_replacement(pod_set.tree, request, 0, existing_pods, capacity, pod_set.topology_name)
        if isinstance(found, TopologyFailure):
            overlay.rollback(before)
            return PlacementFailure(found.pod_set, found.message)
        if capacity.rule_violation is not None:
            overlay.rollback(before)
            return capacity.rule_violation
        placements += [replace(placement, pod_set=i) for placement in capacity.placements]
    return placements


def _first_that_fits(
    overlay: Overlay, attempts: Iterable[Sequence[PendingPodSet]], failure: PlacementFailure | None = None
) -> list[PodPlacement] | PlacementFailure:
    """The attempts in order, best first; on failure `failure`, or that of the first attempt."""
    for attempt in attempts:
        found = place_gang(overlay, attempt)
        if not isinstance(found, PlacementFailure):
            return found
        failure = failure or found
    assert failure is not None, "there is at least one attempt"
    return failure


def _spans_gang(pod_set: PendingPodSet) -> bool:
    return pod_set.topology is not None and pod_set.topology.spans_pod_sets


def _has_level(pod_set: PendingPodSet) -> bool:
    topology = pod_set.topology if pod_set.tree is not None else None
    return bool(pod_set.count and topology is not None and topology.level)


def _same_request(left: PendingPodSet, right: PendingPodSet) -> bool:
    return left.topology == right.topology and left.tree is right.tree


def _near_existing(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    joining: Sequence[int],
    existing: Sequence[Collection[int]],
) -> Iterator[Sequence[PendingPodSet]]:
    """Attempts in which joining pods stay in the domains of the existing ones, each attempt one level wider."""
    size = overlay.snapshot.nodes.size
    levels = {i: levels_to_try(pod_sets[i]) for i in joining}
    for step in range(max(map(len, levels.values()))):
        masks = {
            # A set with fewer levels stays at its widest one.
            i: _domains_of(pod_sets[i], levels[i][min(step, len(levels[i]) - 1)], existing[i], size)
            for i in joining
        }
        yield _restricted(pod_sets, masks)


def _domains_of(pod_set: PendingPodSet, level: str, nodes: Collection[int], size: int) -> Bools:
    """Mask of the domains that hold one of the nodes; of all nodes where none does."""
    assert pod_set.tree is not None
    mask = np.zeros(size, dtype=np.bool_)
    for domain in pod_set.tree.domains(level, size):
        if domain[list(nodes)].any():
            mask |= domain
    # The existing pods may run on nodes that have lost the label since; that must not block the others.
    return mask if mask.any() else np.ones(size, dtype=np.bool_)


def _restricted(pod_sets: Sequence[PendingPodSet], masks: dict[int, Bools]) -> list[PendingPodSet]:
    """The pod sets with trees restricted to the masks."""
    # Pod sets that shared a tree share the restricted one too, so that one search places them all.
    trees: dict[tuple[int, bytes], DomainTree] = {}
    restricted = list(pod_sets)
    for i, mask in masks.items():
        tree = pod_sets[i].tree
        if tree is not None:
            key = (id(tree), mask.tobytes())
            trees.setdefault(key, tree.restricted_to(mask))
            restricted[i] = replace(pod_sets[i], tree=trees[key])
    return restricted


def _in_shared_domain(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], shared: Sequence[int]
) -> Iterator[Sequence[PendingPodSet]]:
    """Attempts with all shared pod sets in one domain, the one with the least capacity first."""
    first = pod_sets[shared[0]]
    assert first.tree is not None
    members = [pod_sets[i] for i in shared]
    rows = [overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod) for pod_set in members]
    capacity = OverlayCapacity(overlay, members, rows)
    for row in rows:
        overlay.refresh(row)
    # Each set is counted alone, so a domain with enough for each may still be too small for all together:
    # the caller then tries the next one.
    counts = [capacity.pods_per_node(i) for i in range(len(members))]
    for level in levels_to_try(first):
        if not level:
            yield pod_sets
            continue
        fitting = [
            (sum(int(count[domain].sum()) for count in counts), number, domain)
            for number, domain in enumerate(first.tree.domains(level, overlay.snapshot.nodes.size))
            if all(int(count[domain].sum()) >= pod_set.count for count, pod_set in zip(counts, members, strict=True))
        ]
        # By capacity and number; masks have no order.
        for _, _, domain in sorted(fitting, key=lambda entry: entry[:2]):
            yield _restricted(pod_sets, dict.fromkeys(shared, domain))


def _no_domain_failure(pod_sets: Sequence[PendingPodSet], shared: Sequence[int]) -> PlacementFailure:
    first, pods = pod_sets[shared[0]], sum(pod_sets[i].count for i in shared)
    assert first.topology is not None
    is_required = first.topology.mode == "required"
    domain = f"domain of {first.topology.level} with room" if is_required else "room"
    message = f'topology "{first.topology_name}" has no {domain} for all {pods} pods of the gang'
    return PlacementFailure(first.name, f"{message} (in {len(shared)} pod sets)")
