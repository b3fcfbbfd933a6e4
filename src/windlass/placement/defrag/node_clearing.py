"""Which pods have to leave a node so that another one fits there.

`search` asks for every node that it considers; the overlay answers whether a pod fits, so that every rule of placement
is in it. Answers are kept by the node's digest, since most nodes look the same from one branch to the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from windlass.cluster.node_state import Uint64s
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
from windlass.placement.defrag.types import MovablePod, MovablePods, PodToPlace
from windlass.placement.overlay import Overlay

Subset = tuple[int, ...]
MAX_TRIED_SETS = 48
"""Sets of pods that are tried for one node."""
MAX_CONSIDERED_SETS = 2048
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


class NodeClearing:
    def __init__(
        self, overlay: Overlay, movable_pods: MovablePods, max_sets: int, step: Callable[[], None]
    ) -> None:
        self._overlay, self._park, self._most, self._step = overlay, movable_pods, max_sets, step
        self._known: dict[tuple[int, int, int, Subset], tuple[tuple[Subset, ...], bool]] = {}

    def reasons(self, item: PodToPlace) -> Uint64s:
        """Why each node can't take it now."""
        self._step()
        overlay = self._overlay
        if overlay.inter_pod_rules().constrains(item.pod):
            return overlay.reasons(item.pod, item.row)
        overlay.refresh(item.row)
        why: Uint64s = overlay.table.cells.why[item.row].copy()
        return why

    def smallest_sets_to_move(
        self, item: PodToPlace, node: int, there: Subset, why: int
    ) -> tuple[tuple[Subset, ...], bool]:
        """Smallest sets of the pods `there` that make room, the lightest first; and whether these are all."""
        digest = int(self._overlay.table.memo.digest[node])
        tied = self._overlay.inter_pod_rules().constrains(item.pod)
        key = (item.row, node, digest, there)
        found = None if tied else self._known.get(key)
        if found is None:
            found = self._find(item, node, there, np.uint64(why))
            if not tied:
                self._known[key] = found
        return found

    def _find(
        self, item: PodToPlace, node: int, there: Subset, why: np.uint64
    ) -> tuple[tuple[Subset, ...], bool]:
        useful = self._useful(item, node, there, why)
        if not useful or not self._fits_without(item, node, useful):
            return (), True
        ways = [self._put_back(item, node, useful)]
        tests, complete = 0, True
        for looks, chosen in enumerate(self._subsets(useful)):
            if any(set(way) <= set(chosen) for way in ways):
                continue
            if looks >= MAX_CONSIDERED_SETS or tests >= MAX_TRIED_SETS or len(ways) >= self._most:
                complete = False
                break
            if not self._could_do(item, node, chosen):
                continue
            tests += 1
            if self._fits_without(item, node, chosen):
                ways.append(chosen)
        return tuple(sorted(ways, key=lambda way: (self._park.total_weight(set(way)), way))), complete

    def _useful(self, item: PodToPlace, node: int, there: Subset, why: np.uint64) -> Subset:
        """Pods that hold something of which the node has too little for the item."""
        if why & _BETWEEN_PODS:
            return there
        short = set(self._shortage(item, node))
        devices = bool(why & _DEVICES) or any(name.startswith("nvidia.com/") for name in short)

        def helps(one: MovablePod) -> bool:
            return (devices and one.shape.gpu is not None) or any(
                name in short for name, _ in one.shape.requests
            )

        return tuple(number for number in there if helps(self._park.pods[number]))

    def _shortage(self, item: PodToPlace, node: int) -> dict[str, int]:
        snapshot, free = self._overlay.snapshot, self._overlay.state.free[node]
        lacking = {
            name: amount - int(free[snapshot.resources.column(name)]) for name, amount in item.shape.requests
        }
        return {name: amount for name, amount in lacking.items() if amount > 0}

    def _could_do(self, item: PodToPlace, node: int, chosen: Subset) -> bool:
        """Whether the sums suffice; cheaper than trying."""
        shortage = self._shortage(item, node)
        for number in chosen:
            for name, amount in self._park.pods[number].shape.requests:
                if name in shortage:
                    shortage[name] -= amount
        gpu = item.shape.gpu
        mig = mig_resource_name(gpu.profile) if gpu is not None and gpu.profile else ""
        return all(amount <= 0 for name, amount in shortage.items() if name != mig)

    def _fits_without(self, item: PodToPlace, node: int, chosen: Iterable[int]) -> bool:
        overlay = self._overlay
        before = overlay.checkpoint()
        for number in chosen:
            overlay.remove_running(self._park.pods[number].pod_row)
        fits = self.reasons(item)[node] == 0
        overlay.rollback(before)
        return bool(fits)

    def _put_back(self, item: PodToPlace, node: int, useful: Subset) -> Subset:
        """All of them gone, then back whoever isn't in the way, the heaviest first."""
        gone = list(useful)
        for number in sorted(useful, key=lambda number: -self._park.min_weight(number)):
            rest = [one for one in gone if one != number]
            if rest and self._fits_without(item, node, rest):
                gone = rest
        return tuple(sorted(gone))

    def _subsets(self, useful: Subset) -> Iterator[Subset]:
        """Sets of pods, the lightest first."""
        classes = self._classes(useful)
        for counts in _by_weight([[self._park.min_weight(number) for number in one] for one in classes]):
            yield tuple(sorted(classes[i][j] for i, count in enumerate(counts) for j in range(count)))

    def _classes(self, useful: Subset) -> list[list[int]]:
        """Pods that stand for each other, so that only how many of them go is a choice."""
        classes: dict[tuple[object, ...], list[int]] = {}
        for number in useful:
            one = self._park.pods[number]
            key = (
                one.shape.key,
                one.loss,
                one.gang_loss,
                one.budgets,
                one.grants if one.may_change_device else (),
            )
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
