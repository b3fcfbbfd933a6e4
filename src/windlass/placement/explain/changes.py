"""The smallest changes to a request that would start it now, each tried on the overlay.

Fed by `advisor` with a hold; one change at a time: a toleration, another GPU model or node selector, a wider topology
level, fewer GPUs or a smaller share a pod, less CPU, memory or of another resource, fewer pods. Amounts are found by
halving: what would start with less would also start with even less. Only what could bear on the reasons of the hold is
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from windlass.cluster.node_state import FREE_MILLI
from windlass.model.gpu import WHOLE_GPU
from windlass.model.reasons import FIRST_RESOURCE_BIT
from windlass.model.requests import format_amount
from windlass.model.verdict import Change
from windlass.model.workload import Workload
from windlass.placement.explain import request_variants as ask
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.relaxed_constraints import relaxed_variants

MAX_CHANGES = 3
"""Changes that a verdict holds."""
MAX_VALUES = 256
ROUNDING = {"cpu": 100, "memory": 1 << 26, "ephemeral-storage": 1 << 26}
"""Offers are round: tenths of a core, and 64 MiB."""
LOSS_DIVISORS = {"cpu": 2, "memory": 2}
"""Giving up so many parts of these counts as one part of GPUs or pods."""

Variant = tuple[Change, Workload]


def find_changes(held: HeldWorkload) -> tuple[Change, ...]:
    """The smallest first; empty where no single change was found that helps."""
    found: list[Change] = []
    for index in range(len(held.piece.pod_sets)):
        for variants in relaxed_variants(held, index):
            _keep_first(held, variants, found)
        for change in _smaller(held, index):
            if change is not None:
                found.append(change)
    return tuple(sorted(found, key=lambda change: (change.loss, change.kind, change.pod_set))[:MAX_CHANGES])


def _keep_first(case: HeldWorkload, variants: Iterator[Variant], found: list[Change]) -> None:
    for change, changed in variants:
        if case.dry_runs.is_exhausted:
            return
        if case.dry_runs.would_start(changed):
            found.append(change)
            return


def _smaller(case: HeldWorkload, index: int) -> Iterator[Change | None]:
    """Less of something."""
    one, space = case.piece.pod_sets[index], case.feasibility(index)
    lacks = {
        case.pod_sets[index].shape.requests[bit - FIRST_RESOURCE_BIT][0]
        for bit, _ in space.reason_counts()
        if bit >= FIRST_RESOURCE_BIT
    }
    gpu = case.pod_sets[index].shape.gpu
    if gpu is not None and not gpu.profile and gpu.milli == 1000 and gpu.count > 1:
        yield _gpus(case, index, gpu.count)
    elif gpu is not None and 0 < gpu.milli < 1000:
        yield _share(case, index, gpu.milli)
    for resource in ("cpu", "memory"):
        if resource in lacks or (case.lacks_quota and resource in dict(case.pod_sets[index].shape.requests)):
            yield _amount(case, index, resource)
    for resource in sorted(lacks - {"cpu", "memory", "pods", WHOLE_GPU}):
        yield _amount(case, index, resource)
    if one.count > 1:
        yield _pods(case, index)


def _gpus(case: HeldWorkload, index: int, count: int) -> Change | None:
    def tried(value: int) -> Workload | None:
        pod = ask.with_gpus(case.piece.pod_sets[index].template, value)
        return None if pod is None else ask.with_pod(case.piece, index, pod)

    value = _largest(range(1, count), tried, case)
    if value is None:
        return None
    word = "GPU" if value == 1 else "GPUs"
    text = f"with {value} {word} a pod instead of {count}{_of_set(case, index)}"
    return _made(case, index, "gpus", text, count, value)


def _share(case: HeldWorkload, index: int, milli: int) -> Change | None:
    rooms = np.unique(case.state.overlay.state.device_occupancy[:, FREE_MILLI])
    values = [value for value in rooms.tolist() if 0 < value < milli] or list(range(100, milli, 100))

    def tried(value: int) -> Workload | None:
        pod = ask.with_share(case.piece.pod_sets[index].template, value)
        return None if pod is None else ask.with_pod(case.piece, index, pod)

    value = _largest(values[-MAX_VALUES:], tried, case)
    if value is None:
        return None
    text = f"with {value / 1000:g} of a GPU instead of {milli / 1000:g}{_of_set(case, index)}"
    return _made(case, index, "share", text, milli, value)


def _amount(case: HeldWorkload, index: int, resource: str) -> Change | None:
    """Values that some node has free, for one pod or for several."""
    part, space = case.pod_sets[index], case.feasibility(index)
    asked = dict(part.shape.requests)[resource]
    step = ROUNDING.get(resource, 1)
    free = space.free(resource)[space.eligible_nodes]
    shares = {
        int(one) // pods // step * step
        for one in np.unique(free)[-32:]
        for pods in range(1, min(part.count, 8) + 1)
    }
    if case.lacks_quota:
        shares |= {asked * tenth // 10 // step * step for tenth in range(1, 10)}
    values = sorted(value for value in shares if 0 < value < asked)[-MAX_VALUES:]

    def tried(value: int) -> Workload | None:
        pod = ask.with_amount(case.piece.pod_sets[index].template, resource, value)
        return None if pod is None else ask.with_pod(case.piece, index, pod)

    value = _largest(values, tried, case)
    if value is None:
        return None
    before, after = format_amount(resource, asked), format_amount(resource, value)
    text = f"with {after} of {resource} a pod instead of {before}{_of_set(case, index)}"
    loss = 1000 * (asked - value) // asked // LOSS_DIVISORS.get(resource, 1)
    kind = resource if resource in LOSS_DIVISORS else "resource"
    return Change(kind, text, case.piece.pod_sets[index].name, before, after, loss)


def _pods(case: HeldWorkload, index: int) -> Change | None:
    count = case.piece.pod_sets[index].count
    most = count - 1
    if not case.lacks_quota and not case.has_topology_request:
        most = min(most, int(case.feasibility(index).pods_per_node.sum()))
    value = _largest(range(1, most + 1), lambda pods: ask.with_count(case.piece, index, pods), case)
    if value is None:
        return None
    word = "pod" if value == 1 else "pods"
    text = f"with {value} {word} instead of {count}{_of_set(case, index)}"
    return _made(case, index, "pods", text, count, value)


def _made(case: HeldWorkload, index: int, kind: str, text: str, before: int, after: int) -> Change:
    loss = 1000 * (before - after) // before
    return Change(kind, text, case.piece.pod_sets[index].name, str(before), str(after), loss)


def _of_set(case: HeldWorkload, index: int) -> str:
    sets = case.piece.pod_sets
    return f" in set {sets[index].name}" if len(sets) > 1 else ""


def _largest(values: Sequence[int], made: Callable[[int], Workload | None], case: HeldWorkload) -> int | None:
    """By halving: the largest of the ascending values with which it starts."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        changed = made(values[middle])
        if changed is not None and case.dry_runs.would_start(changed):
            low = middle + 1
        else:
            high = middle
    return values[low - 1] if low else None
