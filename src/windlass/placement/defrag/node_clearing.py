"""Finds sets of pods that have to leave a node so that another pod fits there.

`move_search` asks for every node that it considers. The overlay says whether the pod fits, so that all placement rules
apply. Answers are cached by the node's digest, since most nodes don't change from one branch to the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from windlass.cluster.node_state import Uint64s
from windlass.model.mig import mig_resource_name
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.model.reasons import DEVICE_BITS, INTER_POD_BITS
from windlass.placement.defrag.types import MovablePod, MovablePods, PodToPlace
from windlass.placement.overlay import Overlay

Subset = tuple[int, ...]
MAX_TRIED_SETS = 48
"""Sets of pods that are tried on the overlay for one node."""
MAX_CONSIDERED_SETS = 2048
"""Sets of pods that are considered for one node; sums rule out most of them without a try."""
_INTER_POD_BITS = np.uint64(INTER_POD_BITS)
_DEVICE_BITS = np.uint64(DEVICE_BITS)


class NodeClearing:
    def __init__(self, overlay: Overlay, movable_pods: MovablePods, max_sets: int, step: Callable[[], None]) -> None:
        self._overlay, self._movable, self._max_sets, self._step = overlay, movable_pods, max_sets, step
        self._cache: dict[tuple[int, int, int, Subset], tuple[tuple[Subset, ...], bool]] = {}

    def reasons(self, item: PodToPlace) -> Uint64s:
        """By node, the mask of reasons why it can't take the pod now."""
        self._step()
        overlay = self._overlay
        if overlay.inter_pod_rules().constrains(item.pod):
            return overlay.reasons(item.pod, item.row)
        reasons: Uint64s = overlay.table.cells.why[overlay.refresh(item.row)].copy()
        return reasons

    def smallest_sets_to_move(
        self, item: PodToPlace, node: int, movable: Subset, reasons: int
    ) -> tuple[tuple[Subset, ...], bool]:
        """Minimal sets of the movable pods on the node whose removal makes the pod fit, the lightest first; and whether
        these are all such sets."""
        digest = int(self._overlay.table.memo.digest[node])
        has_inter_pod_rules = self._overlay.inter_pod_rules().constrains(item.pod)
        key = (item.row, node, digest, movable)
        # Rules between pods depend on other nodes, which the digest of this one does not cover.
        found = None if has_inter_pod_rules else self._cache.get(key)
        if found is None:
            found = self._find(item, node, movable, np.uint64(reasons))
            if not has_inter_pod_rules:
                self._cache[key] = found
        return found

    def _find(
        self, item: PodToPlace, node: int, movable: Subset, reasons: np.uint64
    ) -> tuple[tuple[Subset, ...], bool]:
        useful = self._useful(item, node, movable, reasons)
        if not useful or not self._fits_without(item, node, useful):
            return (), True
        sets = [self._shrink(item, node, useful)]
        tried, complete = 0, True
        for considered, chosen in enumerate(self._subsets(useful)):
            # Not minimal: it contains a set that was found.
            if any(set(numbers) <= set(chosen) for numbers in sets):
                continue
            if considered >= MAX_CONSIDERED_SETS or tried >= MAX_TRIED_SETS or len(sets) >= self._max_sets:
                complete = False
                break
            if not self._sums_suffice(item, node, chosen):
                continue
            tried += 1
            if self._fits_without(item, node, chosen):
                sets.append(chosen)
        sets.sort(key=lambda numbers: (self._movable.total_weight(set(numbers)), numbers))
        return tuple(sets), complete

    def _useful(self, item: PodToPlace, node: int, movable: Subset, reasons: np.uint64) -> Subset:
        """Pods that hold something of which the node has too little."""
        if reasons & _INTER_POD_BITS:
            return movable
        short = set(self._shortage(item, node))
        devices = bool(reasons & _DEVICE_BITS) or any(name.startswith(NVIDIA_PREFIX) for name in short)

        def helps(pod: MovablePod) -> bool:
            return (devices and pod.shape.gpu is not None) or any(name in short for name, _ in pod.shape.requests)

        return tuple(number for number in movable if helps(self._movable.pods[number]))

    def _shortage(self, item: PodToPlace, node: int) -> dict[str, int]:
        snapshot, free = self._overlay.snapshot, self._overlay.state.free[node]
        column = snapshot.resources.column
        lacking = {name: amount - int(free[column(name)]) for name, amount in item.shape.requests}
        return {name: amount for name, amount in lacking.items() if amount > 0}

    def _sums_suffice(self, item: PodToPlace, node: int, chosen: Subset) -> bool:
        """Whether the freed resources suffice in sum: a necessary condition, cheaper than a try."""
        shortage = self._shortage(item, node)
        for number in chosen:
            for name, amount in self._movable.pods[number].shape.requests:
                if name in shortage:
                    shortage[name] -= amount
        gpu = item.shape.gpu
        mig = mig_resource_name(gpu.profile) if gpu is not None and gpu.profile else ""
        return all(amount <= 0 for name, amount in shortage.items() if name != mig)

    def _fits_without(self, item: PodToPlace, node: int, chosen: Iterable[int]) -> bool:
        overlay = self._overlay
        checkpoint = overlay.checkpoint()
        for number in chosen:
            overlay.remove_running(self._movable.pods[number].pod_row)
        fits = self.reasons(item)[node] == 0
        overlay.rollback(checkpoint)
        return bool(fits)

    def _shrink(self, item: PodToPlace, node: int, useful: Subset) -> Subset:
        """A minimal set: all useful pods, without those that can stay, the heaviest first."""
        removed = list(useful)
        for number in sorted(useful, key=lambda number: -self._movable.min_weight(number)):
            rest = [other for other in removed if other != number]
            if rest and self._fits_without(item, node, rest):
                removed = rest
        return tuple(sorted(removed))

    def _subsets(self, useful: Subset) -> Iterator[Subset]:
        """Sets of pods, the lightest first."""
        classes = self._classes(useful)
        for counts in _combinations_by_weight(
            [[self._movable.min_weight(number) for number in members] for members in classes]
        ):
            yield tuple(sorted(classes[i][j] for i, count in enumerate(counts) for j in range(count)))

    def _classes(self, useful: Subset) -> list[list[int]]:
        """Groups of interchangeable pods, of which only the number matters."""
        classes: dict[tuple[object, ...], list[int]] = {}
        for number in useful:
            pod = self._movable.pods[number]
            grants = pod.grants if pod.may_change_device else ()
            key = (pod.shape.key, pod.loss, pod.gang_loss, pod.budgets, grants)
            classes.setdefault(key, []).append(number)
        return list(classes.values())


def _combinations_by_weight(classes: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Numbers of pods per class: every combination except the empty one, the lightest first (best-first search)."""
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
