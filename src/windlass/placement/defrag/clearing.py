"""Which pods have to leave a node so that another one fits there.

`search` asks for every node that it considers; the overlay answers whether a pod fits, so that every rule of placement
is in it. Answers are kept by the node's digest, since most nodes look the same from one branch to the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from windlass.cluster.state import Words
from windlass.model.mig import mig_resource_name
from windlass.model.reasons import (
    WHY_EXCLUSIVE_CLAIM,
    WHY_EXISTING_ANTI_AFFINITY,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
    WHY_POD_AFFINITY,
    WHY_POD_ANTI_AFFINITY,
    WHY_PORTS,
    WHY_SPREAD,
    WHY_VOLUME_LIMIT,
)
from windlass.placement.defrag.terms import Item, Movable, Park
from windlass.placement.overlay import Overlay

Subset = tuple[int, ...]
TESTS = 48
"""Sets of pods that are tried for one node."""
LOOKS = 2048
"""Sets of pods that are looked at for one node, most of which need no trying."""
_BETWEEN_PODS = np.uint64(
    WHY_PORTS
    | WHY_POD_AFFINITY
    | WHY_POD_ANTI_AFFINITY
    | WHY_EXISTING_ANTI_AFFINITY
    | WHY_SPREAD
    | WHY_EXCLUSIVE_CLAIM
    | WHY_VOLUME_LIMIT
)
_DEVICES = np.uint64(WHY_GPU_DEVICE_ROOM | WHY_GPU_UNHEALTHY | WHY_MIG_NO_ROOM)


class Clearing:
    def __init__(self, overlay: Overlay, park: Park, most: int, step: Callable[[], None]) -> None:
        self._overlay, self._park, self._most, self._step = overlay, park, most, step
        self._known: dict[tuple[int, int, int, Subset], tuple[tuple[Subset, ...], bool]] = {}

    def why(self, item: Item) -> Words:
        """Why each node can't take it now."""
        self._step()
        overlay = self._overlay
        if overlay.neighbours().constrains(item.pod):
            return overlay.reasons(item.pod, item.row)
        overlay.refresh(item.row)
        why: Words = overlay.table.cells.why[item.row].copy()
        return why

    def ways(self, item: Item, node: int, there: Subset, why: int) -> tuple[tuple[Subset, ...], bool]:
        """Smallest sets of the pods `there` that make room, the lightest first; and whether these are all."""
        digest = int(self._overlay.table.memo.digest[node])
        tied = self._overlay.neighbours().constrains(item.pod)
        key = (item.row, node, digest, there)
        found = None if tied else self._known.get(key)
        if found is None:
            found = self._find(item, node, there, np.uint64(why))
            if not tied:
                self._known[key] = found
        return found

    def _find(self, item: Item, node: int, there: Subset, why: np.uint64) -> tuple[tuple[Subset, ...], bool]:
        useful = self._useful(item, node, there, why)
        if not useful or not self._fits_without(item, node, useful):
            return (), True
        ways = [self._put_back(item, node, useful)]
        tests, complete = 0, True
        for looks, chosen in enumerate(self._subsets(useful)):
            if any(set(way) <= set(chosen) for way in ways):
                continue
            if looks >= LOOKS or tests >= TESTS or len(ways) >= self._most:
                complete = False
                break
            if not self._could_do(item, node, chosen):
                continue
            tests += 1
            if self._fits_without(item, node, chosen):
                ways.append(chosen)
        return tuple(sorted(ways, key=lambda way: (self._park.weigh(set(way)), way))), complete

    def _useful(self, item: Item, node: int, there: Subset, why: np.uint64) -> Subset:
        """Pods that hold something of which the node has too little for the item."""
        if why & _BETWEEN_PODS:
            return there
        short = set(self._shortage(item, node))
        devices = bool(why & _DEVICES) or any(name.startswith("nvidia.com/") for name in short)

        def helps(one: Movable) -> bool:
            return (devices and one.shape.gpu is not None) or any(
                name in short for name, _ in one.shape.requests
            )

        return tuple(number for number in there if helps(self._park.movables[number]))

    def _shortage(self, item: Item, node: int) -> dict[str, int]:
        snapshot, free = self._overlay.snapshot, self._overlay.state.free[node]
        lacking = {
            name: amount - int(free[snapshot.resources.column(name)]) for name, amount in item.shape.requests
        }
        return {name: amount for name, amount in lacking.items() if amount > 0}

    def _could_do(self, item: Item, node: int, chosen: Subset) -> bool:
        """Whether the sums suffice; cheaper than trying."""
        shortage = self._shortage(item, node)
        for number in chosen:
            for name, amount in self._park.movables[number].shape.requests:
                if name in shortage:
                    shortage[name] -= amount
        gpu = item.shape.gpu
        mig = mig_resource_name(gpu.profile) if gpu is not None and gpu.profile else ""
        return all(amount <= 0 for name, amount in shortage.items() if name != mig)

    def _fits_without(self, item: Item, node: int, chosen: Iterable[int]) -> bool:
        overlay = self._overlay
        before = overlay.checkpoint()
        for number in chosen:
            overlay.remove(self._park.movables[number].pod_row)
        fits = self.why(item)[node] == 0
        overlay.rollback(before)
        return bool(fits)

    def _put_back(self, item: Item, node: int, useful: Subset) -> Subset:
        """All of them gone, then back whoever isn't in the way, the heaviest first."""
        gone = list(useful)
        for number in sorted(useful, key=lambda number: -self._park.floor(number)):
            rest = [one for one in gone if one != number]
            if rest and self._fits_without(item, node, rest):
                gone = rest
        return tuple(sorted(gone))

    def _subsets(self, useful: Subset) -> Iterator[Subset]:
        """Sets of pods, the lightest first."""
        classes = self._classes(useful)
        for counts in _by_weight([[self._park.floor(number) for number in one] for one in classes]):
            yield tuple(sorted(classes[i][j] for i, count in enumerate(counts) for j in range(count)))

    def _classes(self, useful: Subset) -> list[list[int]]:
        """Pods that stand for each other, so that only how many of them go is a choice."""
        classes: dict[tuple[object, ...], list[int]] = {}
        for number in useful:
            one = self._park.movables[number]
            key = (one.shape.key, one.loss, one.charge, one.budgets, one.grants if one.within else ())
            classes.setdefault(key, []).append(number)
        return list(classes.values())


def _by_weight(classes: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """How many of each class: every combination but none at all, the lightest first."""
    start = (0,) * len(classes)
    heap = [(0, start)]
    seen = {start}
    while heap:
        weight, counts = heapq.heappop(heap)
        if counts != start:
            yield counts
        for i, members in enumerate(classes):
            if counts[i] < len(members):
                more = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                if more not in seen:
                    seen.add(more)
                    heapq.heappush(heap, (weight + members[counts[i]], more))
