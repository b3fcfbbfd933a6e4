"""Which domains the parts of a workload may use, where more than its own pods' room decides it.

`placement.site` places through here. Pods that join others of their set (a member above the minimum, one in the place
of a lost one) stay in the domain that was required for the set, and near it where it was preferred. The shapes of a
gang have one request, so they share a domain: the one with the least room that takes them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.facts import Bools
from windlass.placement.gang import Failure, OverlayRoom, Part, Place, place_together
from windlass.placement.overlay import Overlay
from windlass.placement.slices import complete_slices, is_sliced
from windlass.placement.topology import DomainTree


def place_in_domains(
    overlay: Overlay, parts: Sequence[Part], beside: Sequence[Mapping[int, int]]
) -> list[Place] | Failure:
    """As `place_together`. `beside` tells, part by part, how many pods of the same request are on which nodes."""
    sliced = [i for i, there in enumerate(beside) if there and is_sliced(parts[i])]
    if sliced:
        return _with_slices(overlay, parts, sliced, beside)
    joining = [i for i, nodes in enumerate(beside) if nodes and _has_level(parts[i])]
    if joining:
        return _first_that_fits(overlay, _beside(overlay, parts, joining, beside))
    shared = [i for i, part in enumerate(parts) if _has_level(part) and _is_of_gang(part)]
    if len(shared) > 1 and all(_same_request(parts[i], parts[shared[0]]) for i in shared):
        return _first_that_fits(overlay, _shared(overlay, parts, shared), _no_domain(parts, shared))
    return place_together(overlay, parts)


def _with_slices(
    overlay: Overlay, parts: Sequence[Part], sliced: Sequence[int], beside: Sequence[Mapping[int, int]]
) -> list[Place] | Failure:
    before = overlay.checkpoint()
    found = complete_slices(overlay, parts, sliced, beside)
    if isinstance(found, Failure):
        return found
    left = [msgspec.structs.replace(part, count=0) if i in sliced else part for i, part in enumerate(parts)]
    others = place_in_domains(overlay, left, beside)
    if isinstance(others, Failure):
        overlay.rollback(before)
        return others
    return [*found, *others]


def _first_that_fits(
    overlay: Overlay, ways: Iterable[Sequence[Part]], failure: Failure | None = None
) -> list[Place] | Failure:
    """The better ways come first."""
    for way in ways:
        found = place_together(overlay, way)
        if not isinstance(found, Failure):
            return found
        failure = failure or found
    assert failure is not None, "there is one way at least"
    return failure


def _is_of_gang(part: Part) -> bool:
    return part.topology is not None and part.topology.of_gang


def _has_level(part: Part) -> bool:
    return bool(part.count and part.tree is not None and part.topology is not None and part.topology.level)


def _same_request(one: Part, other: Part) -> bool:
    return one.topology == other.topology and one.tree is other.tree


def _beside(
    overlay: Overlay, parts: Sequence[Part], joining: Sequence[int], beside: Sequence[Collection[int]]
) -> Iterator[Sequence[Part]]:
    size = overlay.snapshot.facts.size
    depths = max(len(_levels(parts[i])) for i in joining)
    for wider in range(depths):
        masks = {
            i: _around(parts[i], _levels(parts[i])[min(wider, len(_levels(parts[i])) - 1)], beside[i], size)
            for i in joining
        }
        yield _within(parts, masks)


def _levels(part: Part) -> list[str]:
    """The level that is asked for; where it is only preferred, wider ones after it, and at last none."""
    assert part.topology is not None
    assert part.tree is not None
    wanted, known = part.topology.level, part.tree.levels
    if part.topology.mode == "required" or wanted not in known:
        return [wanted]
    return [*reversed(known[: known.index(wanted) + 1]), ""]


def _around(part: Part, level: str, nodes: Collection[int], size: int) -> Bools:
    """The nodes of the domains that those nodes are in; all where they are in none that is known."""
    assert part.tree is not None
    around = np.zeros(size, dtype=np.bool_)
    for domain in part.tree.domains(level, size):
        if domain[list(nodes)].any():
            around |= domain
    return around if around.any() else np.ones(size, dtype=np.bool_)


def _within(parts: Sequence[Part], masks: dict[int, Bools]) -> list[Part]:
    """Parts that keep one tree between them still do: they are placed on what the others left."""
    trees: dict[tuple[int, bytes], DomainTree] = {}
    narrowed = list(parts)
    for i, mask in masks.items():
        tree = parts[i].tree
        if tree is not None:
            key = (id(tree), mask.tobytes())
            trees.setdefault(key, tree.within(mask))
            narrowed[i] = msgspec.structs.replace(parts[i], tree=trees[key])
    return narrowed


def _shared(overlay: Overlay, parts: Sequence[Part], shared: Sequence[int]) -> Iterator[Sequence[Part]]:
    first = parts[shared[0]]
    assert first.tree is not None
    members = [parts[i] for i in shared]
    rows = [overlay.table.row(part.shape, overlay.snapshot, part.pod) for part in members]
    room = OverlayRoom(overlay, members, rows)
    for row in rows:
        overlay.refresh(row)
    counts = [room.pods(at) for at in range(len(members))]
    for level in _levels(first):
        if not level:
            yield parts
            continue
        fitting = [
            (sum(int(count[domain].sum()) for count in counts), number, domain)
            for number, domain in enumerate(first.tree.domains(level, overlay.snapshot.facts.size))
            if all(
                int(count[domain].sum()) >= part.count for count, part in zip(counts, members, strict=True)
            )
        ]
        for _, _, domain in sorted(fitting, key=lambda one: one[:2]):
            yield _within(parts, dict.fromkeys(shared, domain))


def _no_domain(parts: Sequence[Part], shared: Sequence[int]) -> Failure:
    first, pods = parts[shared[0]], sum(parts[i].count for i in shared)
    assert first.topology is not None
    domain = f"domain of {first.topology.level} with room" if first.topology.mode == "required" else "room"
    message = f'topology "{first.topology_name}" has no {domain} for all {pods} pods of the gang'
    return Failure(first.name, f"{message} (in {len(shared)} shapes)")
