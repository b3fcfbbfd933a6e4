"""A lower bound of the weight of any set of moves, computed node by node from sums.

`defrag.planner` and `move_finder` use it to stop a search early, and `plan defrag` prints the gap to it. To place some
equal pods on a node, the pods that leave have to free what the node lacks, resource by resource. The lightest way to do
that, computed with fractions of pods (or with whole pods where there are few), weighs no more than any real set of
moves. The bound is the lightest distribution of all pods over the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import FREE_MILLI, REPLICAS
from windlass.cluster.pod_accounting import device_share_milli
from windlass.model.names.nvidia import MIG_RESOURCE_PREFIX
from windlass.placement.defrag.movable import held_gpu_milli
from windlass.placement.defrag.types import MovablePods, PodToPlace
from windlass.placement.overlay import Overlay

UNPLACEABLE = 1 << 100
GPU_MILLI = "milli-GPU"
MAX_ENUMERATED_PODS = 10
"""Movable pods of a node up to which all sets of them are enumerated."""
MAX_TABLE_ENTRIES = 4_000_000


def lower_bound(overlay: Overlay, movable_pods: MovablePods, pods: Sequence[PodToPlace]) -> int:
    """A lower bound of the weight of any set of moves; UNPLACEABLE where no moves make the pods fit."""
    if not _total_suffices(overlay, pods):
        return UNPLACEABLE
    pods_by_set: dict[int, list[PodToPlace]] = {}
    for item in pods:
        pods_by_set.setdefault(item.pod_set, []).append(item)
    # One pod that leaves may help several pod sets, so their bounds must not be added up.
    bounds = (_pod_set_bound(overlay, movable_pods, equal_pods) for equal_pods in pods_by_set.values())
    return max(bounds, default=0)


def _total_suffices(overlay: Overlay, pods: Sequence[PodToPlace]) -> bool:
    """Whether the total of what is free suffices: moves only rearrange capacity. MIG instances may be created."""
    requested: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.shape.requests:
            requested[name] = requested.get(name, 0) + amount
    resources, free = overlay.snapshot.resources, np.maximum(overlay.state.free, 0).sum(axis=0)
    mig_resources = {name for name in requested if name.startswith(MIG_RESOURCE_PREFIX)}
    countable = {name: amount for name, amount in requested.items() if name not in mig_resources}
    return all(amount <= int(free[resources.column(name)]) for name, amount in countable.items())


def _pod_set_bound(overlay: Overlay, movable_pods: MovablePods, pods: Sequence[PodToPlace]) -> int:
    pod, count = pods[0], len(pods)
    possible: Bools = overlay.table.static(pod.row) == 0
    if pod.allowed is not None:
        possible = possible & pod.allowed
    nodes = np.flatnonzero(possible).tolist()
    curves = [_weight_curve(overlay, movable_pods, pod, node, count) for node in nodes]
    curves = [curve for curve in curves if len(curve) > 1]
    if sum(len(curve) - 1 for curve in curves) < count:
        return UNPLACEABLE
    free_of_weight = sum(sum(1 for weight in curve if not weight) - 1 for curve in curves)
    if free_of_weight >= count:
        return 0
    if len(curves) * count * min(count, max(map(len, curves))) > MAX_TABLE_ENTRIES:
        return _cheapest_bound(curves, count)
    return _distribution_bound(curves, count)


def _cheapest_bound(curves: Sequence[Sequence[int]], count: int) -> int:
    """As if every pod went to the node where one pod costs least: a weaker bound, for large tables."""
    return count * min(weight // pods for curve in curves for pods, weight in enumerate(curve) if pods)


def _distribution_bound(curves: Sequence[Sequence[int]], count: int) -> int:
    """The lightest distribution of the pods over the nodes, by dynamic programming."""
    best = [0] + [UNPLACEABLE] * count
    for curve in curves:
        best = [
            min(best[pods - here] + curve[here] for here in range(min(pods, len(curve) - 1) + 1))
            for pods in range(count + 1)
        ]
    return best[count]


def _weight_curve(overlay: Overlay, movable_pods: MovablePods, pod: PodToPlace, node: int, count: int) -> list[int]:
    """Lower bounds of the weight of making room for 0, 1, 2, … such pods on the node, as far as they can fit."""
    requested = _requests(overlay, pod, node)
    free = {name: _free(overlay, node, name) for name in requested}
    movable = [movable_pods.pods[number] for number in movable_pods.on_node.get(node, ())]
    held = [{**dict(pod.shape.requests), GPU_MILLI: held_gpu_milli(pod.shape, pod.grants)} for pod in movable]
    weights = [movable_pods.min_weight(running.number) for running in movable]
    curve = [0]
    for pods in range(1, count + 1):
        short = {name: pods * amount - free[name] for name, amount in requested.items()}
        short = {name: amount for name, amount in short.items() if amount > 0}
        weight = _cover(short, held, weights)
        if weight >= UNPLACEABLE:
            break
        curve.append(weight)
    return curve


def _requests(overlay: Overlay, pod: PodToPlace, node: int) -> dict[str, int]:
    gpu = pod.shape.gpu
    requested = dict(pod.shape.requests)
    if gpu is None:
        return requested
    if gpu.profile:
        return {name: amount for name, amount in requested.items() if not name.startswith(MIG_RESOURCE_PREFIX)}
    state = overlay.state
    replicas = int(state.node_info[node, REPLICAS])
    shares = [device_share_milli(state, device, gpu, replicas) for device in state.devices(node)]
    if shares:
        requested[GPU_MILLI] = gpu.count * min(shares)
    return requested


def _free(overlay: Overlay, node: int, name: str) -> int:
    if name == GPU_MILLI:
        state = overlay.state
        return sum(int(state.device_occupancy[device, FREE_MILLI]) for device in state.devices(node))
    return int(overlay.state.free[node, overlay.snapshot.resources.column(name)])


def _cover(lacking: dict[str, int], held: Sequence[dict[str, int]], weights: Sequence[int]) -> int:
    """A lower bound of the weight of pods that together hold what is lacking."""
    if not lacking:
        return 0
    for name, amount in lacking.items():
        if sum(amounts.get(name, 0) for amounts in held) < amount:
            return UNPLACEABLE
    useful = [i for i, amounts in enumerate(held) if any(amounts.get(name, 0) for name in lacking)]
    if len(useful) <= MAX_ENUMERATED_PODS:
        return _cover_whole(lacking, [held[i] for i in useful], [weights[i] for i in useful])
    return max(
        _cover_in_part(amount, [amounts.get(name, 0) for amounts in held], weights) for name, amount in lacking.items()
    )


def _cover_whole(lacking: dict[str, int], held: Sequence[dict[str, int]], weights: Sequence[int]) -> int:
    """The minimum over all sets of pods."""
    sets = [(0, tuple(lacking.values()))]
    best = UNPLACEABLE
    for amounts_held, weight in zip(held, weights, strict=True):
        amounts = [amounts_held.get(name, 0) for name in lacking]
        larger = []
        for total, left in sets:
            rest = tuple(need - amount for need, amount in zip(left, amounts, strict=True))
            if all(need <= 0 for need in rest):
                best = min(best, total + weight)
            else:
                larger.append((total + weight, rest))
        sets += larger
    return best


def _cover_in_part(amount: int, held: Sequence[int], weights: Sequence[int]) -> int:
    """The fractional relaxation for one resource: the pods with the lowest weight per unit first."""
    total = 0
    by_price = sorted(
        ((weight, pod_amount) for weight, pod_amount in zip(weights, held, strict=True) if pod_amount),
        key=lambda pair: Fraction(*pair),
    )
    for weight, pod_amount in by_price:
        if pod_amount >= amount:
            return total + weight * amount // pod_amount
        total, amount = total + weight, amount - pod_amount
    return UNPLACEABLE
