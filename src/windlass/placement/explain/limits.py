"""Finds what keeps a workload from starting: quota, topology level, resources, node rules, planned starts.

`advisor.Advisor` calls `find_limits` for each hold that it explains. The numbers are those of the state after the
decision. The texts are public: they name no other tenant, except in `Limit.behind`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from windlass.model.fragmentation import describe_fragmentation
from windlass.model.names.nvidia import GPU_PRODUCT_LABEL, GPU_RESOURCE
from windlass.model.pod import PodSpec
from windlass.model.queue_names import describe_cluster_queue
from windlass.model.reasons import (
    FIRST_RESOURCE_BIT,
    PERMANENT_BITS,
    RESERVED_FOR_OTHERS,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_MODEL,
    WHY_NODE_AFFINITY,
)
from windlass.model.requests import format_amount
from windlass.model.times import format_timestamp
from windlass.model.topology import level_name
from windlass.model.verdict import CODES_WITH_PUBLIC_DETAIL, Limit
from windlass.placement.empty_cluster import TOO_LARGE, EmptyCluster, mig_resource
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.pod_set_feasibility import WHOLE_MILLI, PodSetFeasibility, free_gpus
from windlass.placement.explain.quota_limits import quota_limits, unused_quota_limit
from windlass.placement.explain.unmatched_selectors import unmatched_selector
from windlass.placement.gang import OverlayCapacity, PendingPodSet
from windlass.placement.topology import TopologyFailure, TopologyPodSetRequest, plan_topology
from windlass.placement.verdicts import reason_of
from windlass.queueing.admit import NOT_CONSIDERED, UNREADY_PREFIX
from windlass.queueing.cycle import WAITS_FOR_ADMITTED
from windlass.queueing.outcome import (
    ADMISSION_DEFERRED,
    BEHIND_HEAD,
    FLAVOR_MISMATCH,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    QUOTA_MISCONFIGURED,
)

MAX_LIMITS = 4
MODEL_OR_AFFINITY_BITS = WHY_GPU_MODEL | WHY_NODE_AFFINITY
QUEUE_OBJECT_CODES = frozenset({QUEUE_MISSING, FLAVOR_MISMATCH, QUOTA_MISCONFIGURED})
"""Codes of holds for which an object of the queue has to change; capacity doesn't matter."""


def find_limits(held: HeldWorkload) -> tuple[Limit, ...]:
    """The limits of a hold, the one to mention first in front."""
    return tuple(islice(_limits(held), MAX_LIMITS))


def _limits(held: HeldWorkload) -> Iterator[Limit]:
    verdict, code = held.verdict, held.verdict.code
    if code == BEHIND_HEAD:
        queue = held.state.occupancy.cluster_queue_of(held.piece)
        name = queue.name if queue is not None else ""
        shown = describe_cluster_queue(name) if name else "its queue"
        text = f"quota suffices, but a workload ahead of it in {shown} waits and has to start first (StrictFIFO)"
        yield Limit("order", text, queue=name, behind=_queue_head(verdict.detail))
    elif code == RESERVED_FOR_OTHERS.code:
        yield _plan_limit(held)
    elif code == ADMISSION_DEFERRED:
        is_stopped = verdict.detail.startswith(NOT_CONSIDERED)
        text = verdict.detail if is_stopped else WAITS_FOR_ADMITTED
        yield Limit("order", text, behind="" if is_stopped else _unready_workload(verdict.detail))
    elif code == QUOTA_MISCONFIGURED and (lacking := tuple(quota_limits(held))):
        yield from lacking
    elif code in QUEUE_OBJECT_CODES or (code in CODES_WITH_PUBLIC_DETAIL and not verdict.counts):
        yield Limit("object", verdict.public_detail, queue=held.piece.queue_name)
    elif code == QUOTA_INSUFFICIENT:
        lacking = tuple(quota_limits(held))
        unused = None if lacking else unused_quota_limit(held)
        yield from lacking if unused is None else (unused,)
    else:
        if code == TOO_LARGE:
            yield from size_limits(held)
        yield from capacity_limits(held)


def _queue_head(detail: str) -> str:
    """The workload at the head of the queue, out of the message of `queueing.admit`."""
    prefix = "waits behind "
    return detail.removeprefix(prefix).partition(",")[0] if detail.startswith(prefix) else ""


def _unready_workload(detail: str) -> str:
    """The workload whose pods are not ready, out of the message of `queueing.admit`; empty where it names none."""
    named = detail.removeprefix(UNREADY_PREFIX).partition(" ")[0] if detail.startswith(UNREADY_PREFIX) else ""
    return named if "/" in named else ""


def _plan_limit(held: HeldWorkload) -> Limit:
    """Names the earliest planned start or reservation that comes before this one."""
    turn = held.state.turns.get(held.piece.key, 1 << 60)
    others = (planned for planned in held.state.planned_starts if not planned.is_for(held.piece))
    earlier = [planned for planned in others if planned.turn < turn]
    if not earlier:
        return Limit("plan", RESERVED_FOR_OTHERS.message)
    first = min(earlier, key=lambda planned: (planned.start, planned.turn, planned.key))
    if first.start <= held.state.now:
        return Limit("plan", RESERVED_FOR_OTHERS.message, behind=first.key)
    start = format_timestamp(first.start)
    return Limit("plan", f"room is free, but kept for work that is planned to begin at {start}", behind=first.key)


# Size


def size_limits(held: HeldWorkload) -> Iterator[Limit]:
    """Where the request is larger than the empty cluster: the resource or topology level that is too small."""
    overlay = held.state.overlay
    empty, total = EmptyCluster(overlay), overlay.state.allocatable
    for index, pod_set in enumerate(held.pod_sets):
        most = int(empty.pods_per_empty_node(pod_set).sum())
        if most:
            topology_failure = empty.never_fits_topology([pod_set])
            failure = topology_failure or empty.never_fits([pod_set])
            if failure is not None:
                level = pod_set.topology.level if topology_failure and pod_set.topology else ""
                needed = str(pod_set.count)
                yield Limit("size", failure.message, level=level, needed=needed, available=str(most))
            continue
        eligible = held.feasibility(index).eligible_nodes
        for name, amount in pod_set.shape.requests:
            column = overlay.snapshot.resources.column(name)
            largest = int(total[eligible, column].max(initial=0))
            if pod_set.shape.gpu is not None and pod_set.shape.gpu.profile and name == mig_resource(pod_set):
                largest = int(empty.instances_per_node(pod_set, name)[eligible].max(initial=0))
            if largest < amount:
                needed, has = format_amount(name, amount), format_amount(name, largest)
                text = f"a pod requests {needed} {name}, the largest eligible node has {has}"
                yield Limit("size", text, resource=name, needed=needed, available=has)


# Capacity


def capacity_limits(held: HeldWorkload) -> Iterator[Limit]:
    if held.has_topology_request:
        yield from _topology_limit(held)
    index = held.tightest_pod_set()
    pod_set, fit = held.pod_sets[index], held.feasibility(index)
    selector = unmatched_selector(fit, _own_spec(held, pod_set))
    if selector is not None:
        yield selector
        if pod_set.shape.gpu is not None:
            yield from _pinned(held, pod_set, fit)
        return  # how much is free on which node doesn't matter
    if pod_set.shape.gpu is not None and not pod_set.shape.gpu.profile:
        yield from _gpu_limits(held, pod_set, fit)
    yield from _node_limits(pod_set, fit)


def _own_spec(held: HeldWorkload, pod_set: PendingPodSet) -> PodSpec:
    """The spec of the pod set without what its flavors add."""
    return next(own.template.spec for own in held.piece.pod_sets if own.name == pod_set.name)


def _topology_limit(held: HeldWorkload) -> Iterator[Limit]:
    """Runs the topology search again, on what is free after the decision."""
    overlay = held.state.overlay
    pod_sets = [pod_set for pod_set in held.pod_sets if pod_set.topology and pod_set.tree is held.tree]
    assert held.tree is not None
    rows = [overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod) for pod_set in pod_sets]
    checkpoint = overlay.checkpoint()
    requests = [TopologyPodSetRequest(pod_set.name, pod_set.count, pod_set.topology) for pod_set in pod_sets]
    result = plan_topology(held.tree, requests, OverlayCapacity(overlay, pod_sets, rows), held.topology)
    overlay.rollback(checkpoint)
    if not isinstance(result, TopologyFailure):
        return
    level = result.level or next(pod_set.topology.level for pod_set in pod_sets if pod_set.topology)
    text = result.message
    if result.level and result.needed:
        text = f"no {level_name(level)} has room for its {result.unit}"
        if result.needed > 1:
            text = f"no {level_name(level)} has room for all {result.needed} {result.unit}s: at most {result.fits} fit"
    yield Limit("topology", text, level=level, needed=str(result.needed or ""), available=str(result.fits))


def _gpu_limits(held: HeldWorkload, pod_set: PendingPodSet, fit: PodSetFeasibility) -> Iterator[Limit]:
    gpu = pod_set.shape.gpu
    assert gpu is not None
    totals = held.gpu_totals()
    unit = 1 if gpu.milli == WHOLE_MILLI else WHOLE_MILLI
    free = sum(totals.free_by_node)
    bits = {bit for bit, _ in fit.reason_counts()}
    # No reason at all means that every node takes some pods, but all nodes together too few.
    if (_lacks_gpus(pod_set, bits) or not bits) and gpu.milli and fit.placeable < pod_set.count:
        requested, available = f"{totals.requested / WHOLE_MILLI:g}", f"{free / unit:g}"
        if totals.are_fragmented and pod_set.count:
            free_by_node = [amount / unit for amount in totals.free_by_node]
            per_pod = gpu.count * gpu.milli / WHOLE_MILLI
            kind = "fragmentation"
            text = describe_fragmentation(free_by_node, per_pod, pod_set.count, fit.placeable)
        else:
            word = "GPU" if requested == "1" else "GPUs"
            kind, text = "resource", f"{requested} {word} requested, {available} free on eligible nodes"
        nodes = int(np.count_nonzero(fit.pods_per_node == 0))
        yield Limit(kind, text, resource=GPU_RESOURCE, needed=requested, available=available, nodes=nodes)
    yield from _pinned(held, pod_set, fit)


def _lacks_gpus(pod_set: PendingPodSet, bits: set[int]) -> bool:
    device_bit = WHY_GPU_DEVICE_ROOM.bit_length() - 1
    names = [pod_set.shape.requests[bit - FIRST_RESOURCE_BIT][0] for bit in bits if bit >= FIRST_RESOURCE_BIT]
    return device_bit in bits or any(name.startswith(GPU_RESOURCE) for name in names)


def _pinned(held: HeldWorkload, pod_set: PendingPodSet, fit: PodSetFeasibility) -> Iterator[Limit]:
    """Free GPUs that only the pod's own GPU model, node selector or affinity excludes."""
    excluded = other_models(pod_set, fit)
    if not excluded:
        return
    total = sum(excluded.values())
    by_model = sorted(excluded.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{count} {name}" for name, count in by_model)
    templates = [template_set.template.spec for template_set in held.piece.pod_sets]
    if pod_set.shape.gpu is not None and pod_set.shape.gpu.models:
        rule = "its request for GPU model"
    elif any(spec.node_selector for spec in templates):
        rule = "its node selector"
    elif any(spec.affinity for spec in templates):
        rule = "its node affinity to"
    else:  # the flavor has added its node labels to the selector: the queue excludes the GPUs, not the request
        rule = "its queue's flavor with node labels"
    text = f"{rule} {pinned_to(pod_set)} excludes {total} free GPUs: {listed}"
    nodes = int(np.count_nonzero(fit.reasons & np.uint64(MODEL_OR_AFFINITY_BITS)))
    yield Limit("model", text, resource=GPU_RESOURCE, available=str(total), nodes=nodes)


def other_models(pod_set: PendingPodSet, feasibility: PodSetFeasibility) -> dict[str, int]:
    """Model → whole free GPUs that only the pod's GPU model, node selector or affinity excludes."""
    overlay, gpu = feasibility.overlay, pod_set.shape.gpu
    if gpu is None or gpu.profile or not (gpu.models or pinned_to(pod_set)):
        return {}
    blocked = np.uint64(PERMANENT_BITS & ~MODEL_OR_AFFINITY_BITS)
    reachable = (feasibility.reasons & blocked) == 0
    affine = (overlay.table.static(feasibility.row) & np.uint64(WHY_NODE_AFFINITY)) == 0
    allowed = overlay.snapshot.gpu_models.mask(gpu.models)
    excluded: dict[str, int] = {}
    for code, name in enumerate(overlay.snapshot.gpu_models.names):
        free = free_gpus(overlay, pod_set.shape, (name,))
        refused = reachable & ~affine if allowed >> code & 1 else reachable
        count = int(free[refused].sum())
        if count:
            excluded[name or "of unknown model"] = count
    return excluded


def pinned_to(pod_set: PendingPodSet) -> str:
    """The GPU model or the node labels that the pod requires; empty where it requires none."""
    spec, gpu = pod_set.pod.spec, pod_set.shape.gpu
    if gpu is not None and gpu.models:
        return " or ".join(dict.fromkeys(gpu.models))
    if GPU_PRODUCT_LABEL in spec.node_selector:
        return spec.node_selector[GPU_PRODUCT_LABEL]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required is not None else ():
        for expression in term.match_expressions:
            if expression.key == GPU_PRODUCT_LABEL and expression.operator == "In":
                return " or ".join(expression.values)
    return ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))


def _node_limits(pod_set: PendingPodSet, fit: PodSetFeasibility) -> Iterator[Limit]:
    """One limit for every reason that is not about GPUs."""
    for bit, nodes in fit.reason_counts():
        name = pod_set.shape.requests[bit - FIRST_RESOURCE_BIT][0] if bit >= FIRST_RESOURCE_BIT else ""
        if name.startswith(GPU_RESOURCE) or bit == WHY_GPU_DEVICE_ROOM.bit_length() - 1:
            continue
        if name and name != "pods":
            most = format_amount(name, int(fit.free(name)[fit.eligible_nodes].max(initial=0)))
            requested = format_amount(name, dict(pod_set.shape.requests)[name])
            has = "node has" if nodes == 1 else "nodes have"
            text = (
                f"{nodes} {has} too little {name} free: {requested} requested per pod, at most {most} free on an "
                "eligible node"
            )
            yield Limit("resource", text, resource=name, needed=requested, available=most, nodes=nodes)
        else:
            reason = reason_of(pod_set.shape, bit)
            kind = "resource" if name == "pods" else "rules"
            yield Limit(kind, f"{nodes} {reason.kube_words}", resource=name, nodes=nodes)
