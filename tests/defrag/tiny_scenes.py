"""Tiny clusters with movable pods as plain numbers, and whether pods fit by trying every placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

from defrag_clusters import NOW, running
from tests.placement.staged_overlay import overlay_on, shape_and_row

from reference.park import gpu_node, pod
from windlass.placement.defrag.movable import MoveCosts, find_movable_pods
from windlass.placement.defrag.types import MovablePods, PodToPlace
from windlass.placement.overlay import Overlay


class Size(NamedTuple):
    cpu: int
    gpus: int

    def minus(self, others: Iterable[Size]) -> Size:
        gone = list(others)
        return Size(self.cpu - sum(one.cpu for one in gone), self.gpus - sum(one.gpus for one in gone))

    def holds(self, other: Size) -> bool:
        return self.cpu >= other.cpu and self.gpus >= other.gpus


class Scene(NamedTuple):
    overlay: Overlay
    movable: MovablePods
    nodes: list[Size]
    sizes: list[Size]
    """Of the movable pods, by number."""
    fixed: list[tuple[int, Size]]
    """(node, size) of the pods that stay."""

    def free(self, node: int, without: Iterable[int] = ()) -> Size:
        gone = set(without)
        here = [self.sizes[one.number] for one in self.movable.pods if one.node == node and one.number not in gone]
        return self.nodes[node].minus([*here, *(size for at, size in self.fixed if at == node)])

    def items(self, size: Size, count: int, **fields: Any) -> list[PodToPlace]:
        waits = pod("w", size.gpus, cpu=str(size.cpu))
        shape, row = shape_and_row(self.overlay, waits)
        return [PodToPlace(waits, shape, row, **fields) for _ in range(count)]

    def subsets(self, node: int) -> list[tuple[int, ...]]:
        numbers = self.movable.on_node.get(node, ())
        return [chosen for n in range(len(numbers) + 1) for chosen in combinations(numbers, n)]


def drawn(rng: Random, most_nodes: int = 3, most_pods: int = 3) -> Scene:
    nodes = [Size(rng.randint(4, 10), rng.randint(2, 4)) for _ in range(rng.randint(1, most_nodes))]
    objects: list[Any] = [gpu_node(f"n{at}", size.gpus, cpu=size.cpu) for at, size in enumerate(nodes)]
    left = list(nodes)
    sizes, fixed = [], []
    for at in range(len(nodes)):
        for number in range(rng.randint(0, most_pods)):
            size = Size(rng.randint(1, 3), rng.randint(0, 2))
            if not left[at].holds(size):
                continue
            left[at] = left[at].minus([size])
            kind = "ReplicaSet" if rng.random() < 0.8 else ""
            age = 10 * rng.randint(1, 9)
            objects.append(running(f"p{at}{number}", size.gpus, cpu=str(size.cpu), on=f"n{at}", age=age, kind=kind))
            (sizes if kind else []).append(size)
            if not kind:
                fixed.append((at, size))
    return staged(objects, nodes, sizes, fixed)


def staged(objects: Sequence[Any], nodes: list[Size], sizes: list[Size], fixed: list[tuple[int, Size]]) -> Scene:
    overlay = overlay_on(*objects, now=NOW)
    movable = find_movable_pods(overlay.snapshot, (), [], MoveCosts(NOW))
    assert len(movable.pods) == len(sizes)
    return Scene(overlay, movable, nodes, sizes, fixed)


def arrangement(scene: Scene, moved: tuple[int, ...], wanted: list[Size]) -> bool:
    """Whether the moved pods and those that wait all get a node, the moved ones another than their own."""
    pods = [(scene.sizes[number], scene.movable.pods[number].node) for number in moved]
    pods += [(size, -1) for size in wanted]

    def place(at: int, free: list[Size]) -> bool:
        if at == len(pods):
            return True
        size, own = pods[at]
        return any(
            node != own
            and free[node].holds(size)
            and place(at + 1, [one.minus([size]) if other == node else one for other, one in enumerate(free)])
            for node in range(len(free))
        )

    return place(0, [scene.free(node, moved) for node in range(len(scene.nodes))])
