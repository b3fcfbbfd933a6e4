"""What no set of moves can stay below, worked out node by node without trying anything.

Feeds the gap that a plan prints, and tells a search that it can stop. For so many equal pods on a node, the pods that
leave it have to give back what the node lacks, resource by resource; the lightest way to do that, where pods may leave
in part or (few pods) whole, weighs no more than any real way. A choice of nodes for all the pods adds these up.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import FREE_MILLI, REPLICAS
from windlass.cluster.pod_accounting import device_share_milli
from windlass.placement.defrag.movable import held_gpu_milli
from windlass.placement.defrag.types import MovablePods, PodToPlace
from windlass.placement.overlay import Overlay

UNPLACEABLE = 1 << 100
GPU_MILLI = "milli-GPU"
MAX_ENUMERATED_PODS = 10
"""Pods on a node up to which every set of them is looked at."""
_ENTRIES = 4_000_000


def lower_bound(overlay: Overlay, movable_pods: MovablePods, pods: Sequence[PodToPlace]) -> int:
    """A weight that any set of moves has at least; NEVER where the pods can't be placed however others move."""
    if not _is_enough(overlay, pods):
        return UNPLACEABLE
    parts: dict[int, list[PodToPlace]] = {}
    for item in pods:
        parts.setdefault(item.pod_set, []).append(item)
    # Pods that leave may serve several parts, so the parts don't add up.
    return max((_part_bound(overlay, movable_pods, part) for part in parts.values()), default=0)


def _is_enough(overlay: Overlay, items: Sequence[PodToPlace]) -> bool:
    """Moves don't make room, they only gather it: what is free in all has to suffice."""
    asked: dict[str, int] = {}
    for item in items:
        for name, amount in item.shape.requests:
            asked[name] = asked.get(name, 0) + amount
    resources, free = overlay.snapshot.resources, np.maximum(overlay.state.free, 0).sum(axis=0)
    mig = {name for name in asked if name.startswith("nvidia.com/mig-")}
    return all(
        amount <= int(free[resources.column(name)]) for name, amount in asked.items() if name not in mig
    )


def _part_bound(overlay: Overlay, park: MovablePods, items: Sequence[PodToPlace]) -> int:
    item, count = items[0], len(items)
    possible: Bools = overlay.table.cells.static[item.row] == 0
    if item.allowed is not None:
        possible = possible & item.allowed
    nodes = np.flatnonzero(possible).tolist()
    curves = [_curve(overlay, park, item, node, count) for node in nodes]
    curves = [curve for curve in curves if len(curve) > 1]
    if sum(len(curve) - 1 for curve in curves) < count:
        return UNPLACEABLE
    free = sum(sum(1 for weight in curve if not weight) - 1 for curve in curves)
    if free >= count:
        return 0
    if len(curves) * count * min(count, max(map(len, curves))) > _ENTRIES:
        return _by_lightest(curves, count)
    return _by_choice(curves, count)


def _by_lightest(curves: Sequence[Sequence[int]], count: int) -> int:
    """Every pod as if it went where one weighs the least."""
    return count * min(weight // pods for curve in curves for pods, weight in enumerate(curve) if pods)


def _by_choice(curves: Sequence[Sequence[int]], count: int) -> int:
    """The lightest way to share the pods out over the nodes."""
    best = [0] + [UNPLACEABLE] * count
    for curve in curves:
        best = [
            min(best[pods - here] + curve[here] for here in range(min(pods, len(curve) - 1) + 1))
            for pods in range(count + 1)
        ]
    return best[count]


def _curve(overlay: Overlay, park: MovablePods, item: PodToPlace, node: int, count: int) -> list[int]:
    """What making room for 0, 1, 2, … such pods on the node weighs at least, as far as it is possible at all."""
    asked = _asked(overlay, item, node)
    free = {name: _free(overlay, node, name) for name in asked}
    there = [park.pods[number] for number in park.on_node.get(node, ())]
    held = [{**dict(one.shape.requests), GPU_MILLI: held_gpu_milli(one.shape, one.grants)} for one in there]
    weights = [park.min_weight(one.number) for one in there]
    curve = [0]
    for pods in range(1, count + 1):
        short = {name: pods * amount - free[name] for name, amount in asked.items()}
        short = {name: amount for name, amount in short.items() if amount > 0}
        weight = _cover(short, held, weights)
        if weight >= UNPLACEABLE:
            break
        curve.append(weight)
    return curve


def _asked(overlay: Overlay, item: PodToPlace, node: int) -> dict[str, int]:
    gpu = item.shape.gpu
    asked = dict(item.shape.requests)
    if gpu is None:
        return asked
    if gpu.profile:
        return {name: amount for name, amount in asked.items() if not name.startswith("nvidia.com/mig-")}
    state = overlay.state
    replicas = int(state.node_info[node, REPLICAS])
    shares = [device_share_milli(state, device, gpu, replicas) for device in state.devices(node)]
    if shares:
        asked[GPU_MILLI] = gpu.count * min(shares)
    return asked


def _free(overlay: Overlay, node: int, name: str) -> int:
    if name == GPU_MILLI:
        return sum(
            int(overlay.state.device_occupancy[device, FREE_MILLI]) for device in overlay.state.devices(node)
        )
    return int(overlay.state.free[node, overlay.snapshot.resources.column(name)])


def _cover(short: dict[str, int], held: Sequence[dict[str, int]], weights: Sequence[int]) -> int:
    """The least weight of pods that together hold what is short."""
    if not short:
        return 0
    for name, amount in short.items():
        if sum(one.get(name, 0) for one in held) < amount:
            return UNPLACEABLE
    useful = [i for i, one in enumerate(held) if any(one.get(name, 0) for name in short)]
    if len(useful) <= MAX_ENUMERATED_PODS:
        return _cover_whole(short, [held[i] for i in useful], [weights[i] for i in useful])
    return max(
        _cover_in_part(amount, [one.get(name, 0) for one in held], weights) for name, amount in short.items()
    )


def _cover_whole(short: dict[str, int], held: Sequence[dict[str, int]], weights: Sequence[int]) -> int:
    """Over every set of pods."""
    sets = [(0, tuple(short.values()))]
    best = UNPLACEABLE
    for one, weight in zip(held, weights, strict=True):
        amounts = [one.get(name, 0) for name in short]
        grown = []
        for sum_so_far, left in sets:
            rest = tuple(need - amount for need, amount in zip(left, amounts, strict=True))
            if all(need <= 0 for need in rest):
                best = min(best, sum_so_far + weight)
            else:
                grown.append((sum_so_far + weight, rest))
        sets += grown
    return best


def _cover_in_part(amount: int, held: Sequence[int], weights: Sequence[int]) -> int:
    """As if pods could leave in part: the lightest for what they give back first."""
    total = 0
    by_price = sorted(
        ((weight, part) for weight, part in zip(weights, held, strict=True) if part),
        key=lambda pair: Fraction(*pair),
    )
    for weight, part in by_price:
        if part >= amount:
            return total + weight * amount // part
        total, amount = total + weight, amount - part
    return UNPLACEABLE
