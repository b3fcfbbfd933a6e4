"""The smallest changes to a request that would let it start now, each checked by a dry run.

`advisor.Advisor` calls `find_changes` for a hold. One change at a time: a toleration, another GPU model or node
selector, a wider topology level, fewer GPUs or a smaller share per pod, less CPU, memory or another resource, fewer
pods. Amounts are found by bisection, since a request that would start also starts with less. Only changes that
concern the reasons of the hold are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from windlass.cluster.node_state import FREE_MILLI
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.reasons import FIRST_RESOURCE_BIT
from windlass.model.requests import format_amount
from windlass.model.verdict import Change
from windlass.model.workload import Workload
from windlass.placement.explain import request_variants as variants
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.relaxed_constraints import relaxed_variants

MAX_CHANGES = 3
"""Changes that a verdict holds."""
MAX_VALUES = 256
ROUNDING = {"cpu": 100, "memory": 1 << 26, "ephemeral-storage": 1 << 26}
"""Suggested amounts are multiples of these: tenths of a core, and 64 MiB."""
LOSS_DIVISORS = {"cpu": 2, "memory": 2}
"""CPU and memory count for half as much loss as GPUs or pods, so that giving them up is suggested first."""

Variant = tuple[Change, Workload]


def find_changes(held: HeldWorkload) -> tuple[Change, ...]:
    """The smallest first; empty where no single change was found that helps."""
    found: list[Change] = []
    for index in range(len(held.piece.pod_sets)):
        for candidates in relaxed_variants(held, index):
            _keep_first(held, candidates, found)
        for change in _smaller_requests(held, index):
            if change is not None:
                found.append(change)
    return tuple(sorted(found, key=lambda change: (change.loss, change.kind, change.pod_set))[:MAX_CHANGES])


def _keep_first(held: HeldWorkload, candidates: Iterator[Variant], found: list[Change]) -> None:
    for change, changed in candidates:
        if held.dry_runs.is_exhausted:
            return
        if held.dry_runs.would_start(changed):
            found.append(change)
            return


def _smaller_requests(held: HeldWorkload, index: int) -> Iterator[Change | None]:
    """Requests for less of one resource, or for fewer pods; None where no smaller value would start."""
    pod_set, feasibility = held.piece.pod_sets[index], held.feasibility(index)
    lacks = {
        held.pod_sets[index].shape.requests[bit - FIRST_RESOURCE_BIT][0]
        for bit, _ in feasibility.reason_counts()
        if bit >= FIRST_RESOURCE_BIT
    }
    gpu = held.pod_sets[index].shape.gpu
    if gpu is not None and not gpu.profile and gpu.milli == 1000 and gpu.count > 1:
        yield _fewer_gpus(held, index, gpu.count)
    elif gpu is not None and 0 < gpu.milli < 1000:
        yield _smaller_share(held, index, gpu.milli)
    for resource in ("cpu", "memory"):
        if resource in lacks or (held.lacks_quota and resource in dict(held.pod_sets[index].shape.requests)):
            yield _smaller_amount(held, index, resource)
    for resource in sorted(lacks - {"cpu", "memory", "pods", GPU_RESOURCE}):
        yield _smaller_amount(held, index, resource)
    if pod_set.count > 1:
        yield _fewer_pods(held, index)


def _fewer_gpus(held: HeldWorkload, index: int, count: int) -> Change | None:
    def variant(value: int) -> Workload | None:
        pod = variants.with_gpus(held.piece.pod_sets[index].template, value)
        return None if pod is None else variants.with_pod(held.piece, index, pod)

    value = _largest_that_starts(range(1, count), variant, held)
    if value is None:
        return None
    word = "GPU" if value == 1 else "GPUs"
    text = f"with {value} {word} per pod instead of {count}{_in_pod_set(held, index)}"
    return _make_change(held, index, "gpus", text, count, value)


def _smaller_share(held: HeldWorkload, index: int, milli: int) -> Change | None:
    free_shares = np.unique(held.state.overlay.state.device_occupancy[:, FREE_MILLI])
    values = [value for value in free_shares.tolist() if 0 < value < milli] or list(range(100, milli, 100))

    def variant(value: int) -> Workload | None:
        pod = variants.with_share(held.piece.pod_sets[index].template, value)
        return None if pod is None else variants.with_pod(held.piece, index, pod)

    value = _largest_that_starts(values[-MAX_VALUES:], variant, held)
    if value is None:
        return None
    text = f"with {value / 1000:g} of a GPU instead of {milli / 1000:g}{_in_pod_set(held, index)}"
    return _make_change(held, index, "share", text, milli, value)


def _smaller_amount(held: HeldWorkload, index: int, resource: str) -> Change | None:
    """Tries what some node has free, undivided or divided by several pods."""
    pod_set, feasibility = held.pod_sets[index], held.feasibility(index)
    requested = dict(pod_set.shape.requests)[resource]
    step = ROUNDING.get(resource, 1)
    free = feasibility.free(resource)[feasibility.eligible_nodes]
    shares = {
        int(amount) // pods // step * step
        for amount in np.unique(free)[-32:]
        for pods in range(1, min(pod_set.count, 8) + 1)
    }
    if held.lacks_quota:
        shares |= {requested * tenth // 10 // step * step for tenth in range(1, 10)}
    values = sorted(value for value in shares if 0 < value < requested)[-MAX_VALUES:]

    def variant(value: int) -> Workload | None:
        pod = variants.with_amount(held.piece.pod_sets[index].template, resource, value)
        return None if pod is None else variants.with_pod(held.piece, index, pod)

    value = _largest_that_starts(values, variant, held)
    if value is None:
        return None
    before, after = format_amount(resource, requested), format_amount(resource, value)
    text = f"with {after} {resource} per pod instead of {before}{_in_pod_set(held, index)}"
    loss = 1000 * (requested - value) // requested // LOSS_DIVISORS.get(resource, 1)
    kind = resource if resource in LOSS_DIVISORS else "resource"
    return Change(kind, text, held.piece.pod_sets[index].name, before, after, loss)


def _fewer_pods(held: HeldWorkload, index: int) -> Change | None:
    count = held.piece.pod_sets[index].count
    largest = count - 1
    if not held.lacks_quota and not held.has_topology_request:
        largest = min(largest, int(held.feasibility(index).pods_per_node.sum()))
    counts = range(1, largest + 1)
    value = _largest_that_starts(counts, lambda pods: variants.with_count(held.piece, index, pods), held)
    if value is None:
        return None
    word = "pod" if value == 1 else "pods"
    text = f"with {value} {word} instead of {count}{_in_pod_set(held, index)}"
    return _make_change(held, index, "pods", text, count, value)


def _make_change(held: HeldWorkload, index: int, kind: str, text: str, before: int, after: int) -> Change:
    loss = 1000 * (before - after) // before
    return Change(kind, text, held.piece.pod_sets[index].name, str(before), str(after), loss)


def _in_pod_set(held: HeldWorkload, index: int) -> str:
    pod_sets = held.piece.pod_sets
    return f" in pod set {pod_sets[index].name}" if len(pod_sets) > 1 else ""


def _largest_that_starts(
    values: Sequence[int], make: Callable[[int], Workload | None], held: HeldWorkload
) -> int | None:
    """The largest of the ascending values with which it would start, by bisection."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        changed = make(values[middle])
        if changed is not None and held.dry_runs.would_start(changed):
            low = middle + 1
        else:
            high = middle
    return values[low - 1] if low else None
