"""Which domains the parts of a workload may use, where more than its own pods' room decides it.

`placement.workload_placer` places through here. Pods that join others of their set (a member above the minimum, one
in the place of a lost one) stay in the domain that was required for the set, and near it where it was preferred. The
shapes of a gang have one request, so they share a domain: the one with the least room that takes them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.placement.gang import OverlayCapacity, PendingPodSet, PlacementFailure, PodPlacement, place_gang
from windlass.placement.overlay import Overlay
from windlass.placement.slice_completion import complete_slices, is_sliced
from windlass.placement.topology import DomainTree


def place_in_domains(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], existing: Sequence[Mapping[int, int]]
) -> list[PodPlacement] | PlacementFailure:
    """As `place_together`. `beside` tells, part by part, how many pods of the same request are on which nodes."""
    sliced = [i for i, there in enumerate(existing) if there and is_sliced(pod_sets[i])]
    if sliced:
        return _with_slices(overlay, pod_sets, sliced, existing)
    joining = [i for i, nodes in enumerate(existing) if nodes and _has_level(pod_sets[i])]
    if joining:
        return _first_that_fits(overlay, _beside(overlay, pod_sets, joining, existing))
    shared = [i for i, part in enumerate(pod_sets) if _has_level(part) and _is_of_gang(part)]
    if len(shared) > 1 and all(_same_request(pod_sets[i], pod_sets[shared[0]]) for i in shared):
        return _first_that_fits(overlay, _shared(overlay, pod_sets, shared), _no_domain(pod_sets, shared))
    return place_gang(overlay, pod_sets)


def _with_slices(
    overlay: Overlay,
    parts: Sequence[PendingPodSet],
    sliced: Sequence[int],
    beside: Sequence[Mapping[int, int]],
) -> list[PodPlacement] | PlacementFailure:
    before = overlay.checkpoint()
    found = complete_slices(overlay, parts, sliced, beside)
    if isinstance(found, PlacementFailure):
        return found
    left = [msgspec.structs.replace(part, count=0) if i in sliced else part for i, part in enumerate(parts)]
    others = place_in_domains(overlay, left, beside)
    if isinstance(others, PlacementFailure):
        overlay.rollback(before)
        return others
    return [*found, *others]


def _first_that_fits(
    overlay: Overlay, ways: Iterable[Sequence[PendingPodSet]], failure: PlacementFailure | None = None
) -> list[PodPlacement] | PlacementFailure:
    """The better ways come first."""
    for way in ways:
        found = place_gang(overlay, way)
        if not isinstance(found, PlacementFailure):
            return found
        failure = failure or found
    assert failure is not None, "there is one way at least"
    return failure


def _is_of_gang(part: PendingPodSet) -> bool:
    return part.topology is not None and part.topology.spans_pod_sets


def _has_level(part: PendingPodSet) -> bool:
    return bool(part.count and part.tree is not None and part.topology is not None and part.topology.level)


def _same_request(one: PendingPodSet, other: PendingPodSet) -> bool:
    return one.topology == other.topology and one.tree is other.tree


def _beside(
    overlay: Overlay,
    parts: Sequence[PendingPodSet],
    joining: Sequence[int],
    beside: Sequence[Collection[int]],
) -> Iterator[Sequence[PendingPodSet]]:
    size = overlay.snapshot.nodes.size
    depths = max(len(_levels(parts[i])) for i in joining)
    for wider in range(depths):
        masks = {
            i: _around(parts[i], _levels(parts[i])[min(wider, len(_levels(parts[i])) - 1)], beside[i], size)
            for i in joining
        }
        yield _within(parts, masks)


def _levels(part: PendingPodSet) -> list[str]:
    """The level that is asked for; where it is only preferred, wider ones after it, and at last none."""
    assert part.topology is not None
    assert part.tree is not None
    wanted, known = part.topology.level, part.tree.levels
    if part.topology.mode == "required" or wanted not in known:
        return [wanted]
    return [*reversed(known[: known.index(wanted) + 1]), ""]


def _around(part: PendingPodSet, level: str, nodes: Collection[int], size: int) -> Bools:
    """The nodes of the domains that those nodes are in; all where they are in none that is known."""
    assert part.tree is not None
    around = np.zeros(size, dtype=np.bool_)
    for domain in part.tree.domains(level, size):
        if domain[list(nodes)].any():
            around |= domain
    return around if around.any() else np.ones(size, dtype=np.bool_)


def _within(parts: Sequence[PendingPodSet], masks: dict[int, Bools]) -> list[PendingPodSet]:
    """Parts that keep one tree between them still do: they are placed on what the others left."""
    trees: dict[tuple[int, bytes], DomainTree] = {}
    narrowed = list(parts)
    for i, mask in masks.items():
        tree = parts[i].tree
        if tree is not None:
            key = (id(tree), mask.tobytes())
            trees.setdefault(key, tree.restricted_to(mask))
            narrowed[i] = msgspec.structs.replace(parts[i], tree=trees[key])
    return narrowed


def _shared(
    overlay: Overlay, parts: Sequence[PendingPodSet], shared: Sequence[int]
) -> Iterator[Sequence[PendingPodSet]]:
    first = parts[shared[0]]
    assert first.tree is not None
    members = [parts[i] for i in shared]
    rows = [overlay.table.row(part.shape, overlay.snapshot, part.pod) for part in members]
    room = OverlayCapacity(overlay, members, rows)
    for row in rows:
        overlay.refresh(row)
    counts = [room.pods_per_node(at) for at in range(len(members))]
    for level in _levels(first):
        if not level:
            yield parts
            continue
        fitting = [
            (sum(int(count[domain].sum()) for count in counts), number, domain)
            for number, domain in enumerate(first.tree.domains(level, overlay.snapshot.nodes.size))
            if all(
                int(count[domain].sum()) >= part.count for count, part in zip(counts, members, strict=True)
            )
        ]
        for _, _, domain in sorted(fitting, key=lambda one: one[:2]):
            yield _within(parts, dict.fromkeys(shared, domain))


def _no_domain(parts: Sequence[PendingPodSet], shared: Sequence[int]) -> PlacementFailure:
    first, pods = parts[shared[0]], sum(parts[i].count for i in shared)
    assert first.topology is not None
    domain = f"domain of {first.topology.level} with room" if first.topology.mode == "required" else "room"
    message = f'topology "{first.topology_name}" has no {domain} for all {pods} pods of the gang'
    return PlacementFailure(first.name, f"{message} (in {len(shared)} shapes)")
