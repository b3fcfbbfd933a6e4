"""What binds a workload that waits, as numbers and in words that its owner may read.

Quota of its own queue, the topology level, the resource and on how many nodes, the work or the plan before it. Read by
`advisor`; the numbers are those of the state after the decision.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windlass.model.quota import MILLI_PER_GPU
from windlass.model.reasons import (
    FIRST_RESOURCE_BIT,
    POD_REASONS,
    RESERVED_FOR_OTHERS,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_MODEL,
    WHY_NODE_AFFINITY,
)
from windlass.model.requests import format_amount
from windlass.model.topology import level_name
from windlass.model.verdict import PUBLIC_MESSAGE_BY_CODE, Limit
from windlass.placement.empty_cluster import TOO_LARGE, EmptyCluster
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.pod_set_feasibility import WHOLE_MILLI, PodSetFeasibility, free_gpus
from windlass.placement.gang import OverlayCapacity, PendingPodSet
from windlass.placement.topology import TopologyFailure, TopologyPodSetRequest, plan_topology
from windlass.placement.verdicts import reason_of
from windlass.queueing.admitted_workload import GPU
from windlass.queueing.outcome import (
    BEHIND_HEAD,
    FLAVOR_MISMATCH,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    QUOTA_MISCONFIGURED,
)
from windlass.queueing.pending_workload import PODS
from windlass.queueing.quota_node import QuotaNode

MAX_LIMITS = 4
MAX_LISTED_NODES = 6
MODEL_OR_AFFINITY_BITS = WHY_GPU_MODEL | WHY_NODE_AFFINITY
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
OBJECT_CODES = frozenset(
    {QUEUE_MISSING, FLAVOR_MISMATCH, QUOTA_MISCONFIGURED}
    | {"GANG_INCOMPLETE", "JOB_SUSPENDED", "RESOURCE_QUOTA_EXCEEDED"}
)
"""Codes of holds that are about objects, not about room."""


def find_limits(held: HeldWorkload) -> tuple[Limit, ...]:
    """The first binds most."""
    return tuple(limit for limit, _ in zip(_limits(held), range(MAX_LIMITS), strict=False))


def _limits(case: HeldWorkload) -> Iterator[Limit]:
    code = case.verdict.code
    if code == BEHIND_HEAD:
        queue = case.state.occupancy.cluster_queue_of(case.piece)
        name = queue.name if queue is not None else ""
        text = f"quota would do, but work ahead of it in queue {name} waits, and the queue is strict"
        yield Limit("order", text, queue=name, behind=_head(case.verdict.detail))
    elif code == RESERVED_FOR_OTHERS.code:
        yield Limit("plan", RESERVED_FOR_OTHERS.message, behind=_first_plan(case))
    elif code in OBJECT_CODES:
        yield Limit("object", PUBLIC_MESSAGE_BY_CODE[code], queue=case.piece.queue_name)
        if code == QUOTA_MISCONFIGURED:
            yield from quota_limits(case)
    elif text := next((reason.message for reason in POD_REASONS if reason.code == code), ""):
        yield Limit("object", text)
    elif code == QUOTA_INSUFFICIENT:
        yield from quota_limits(case)
    else:
        if code == TOO_LARGE:
            yield from size_limits(case)
        yield from capacity_limits(case)


def _head(detail: str) -> str:
    """Queueing names the head of the queue in its sentence."""
    return (
        detail.removeprefix("waits behind ").partition(",")[0] if detail.startswith("waits behind ") else ""
    )


def _first_plan(case: HeldWorkload) -> str:
    turn = case.state.turns.get(case.piece.key, 1 << 60)
    ahead = [wall for wall in case.state.planned_starts if wall.turn < turn and not wall.is_for(case.piece)]
    return min(ahead, key=lambda wall: (wall.start, wall.turn, wall.key)).key if ahead else ""


# Quota


def quota_limits(case: HeldWorkload) -> Iterator[Limit]:
    """Per resource of which the queue has too little left: the flavor that comes closest."""
    node = case.state.occupancy.cluster_queue_of(case.piece)
    if node is None:
        return
    case.state.occupancy.set_quota_at(case.state.now, ())
    for resource, needed in sorted(requested_quota(case).items()):
        cells = [
            (quotas.flavor, resource)
            for group in node.spec.resource_groups
            if resource in group.resources
            for quotas in group.flavors
        ]
        if not cells:
            if resource != PODS and not case.state.queues.ignore_undeclared:
                yield Limit(
                    "quota", f"queue {node.name} has no quota for {resource}", node.name, resource=resource
                )
            continue
        best = max(cells, key=node.available)
        if node.available(best) < needed:
            yield _quota_limit(node, best, resource, needed)


def requested_quota(case: HeldWorkload) -> dict[str, int]:
    asked: dict[str, int] = {}
    for one in case.piece.pod_sets:
        for resource, amount in case.state.placer.requests(case.piece, one).items():
            asked[resource] = asked.get(resource, 0) + amount * one.count
    return asked


def _quota_limit(node: QuotaNode, cell: tuple[str, str], resource: str, needed: int) -> Limit:
    left, most = node.available(cell), node.potential_available(cell)
    text = (
        f"queue {node.name} has {quota_amount(resource, left)} {resource} left in flavor {cell[0]}, "
        f"and it asks for {quota_amount(resource, needed)}"
    )
    if needed > most:
        text += f"; more than {quota_amount(resource, most)} the queue can never have"
    return Limit(
        "quota",
        text,
        queue=node.name,
        flavor=cell[0],
        resource=resource,
        needed=quota_amount(resource, needed),
        available=quota_amount(resource, left),
    )


def exceeds_quota(case: HeldWorkload) -> bool:
    """Whether its queue could not give it that much even if nobody else held any."""
    node = case.state.occupancy.cluster_queue_of(case.piece)
    if node is None:
        return False
    for resource, needed in requested_quota(case).items():
        cells = [
            (quotas.flavor, resource)
            for group in node.spec.resource_groups
            if resource in group.resources
            for quotas in group.flavors
        ]
        if cells and all(node.potential_available(cell) < needed for cell in cells):
            return True
    return False


def quota_amount(resource: str, amount: int) -> str:
    """GPUs are counted in thousandths there."""
    return f"{amount / MILLI_PER_GPU:g}" if resource == GPU else format_amount(resource, amount)


# Size


def size_limits(case: HeldWorkload) -> Iterator[Limit]:
    """What even the empty cluster has too little of."""
    overlay = case.state.overlay
    empty, total = EmptyCluster(overlay), overlay.state.allocatable
    for index, part in enumerate(case.pod_sets):
        most = int(empty.pods_per_empty_node(part).sum())
        if most:
            close = empty.never_fits_topology([part])
            never = close or empty.never_fits([part])
            if never is not None:
                level = part.topology.level if close is not None and part.topology is not None else ""
                yield Limit("size", never.message, level=level, needed=str(part.count), available=str(most))
            continue
        may_use = case.feasibility(index).eligible_nodes
        for name, amount in part.shape.requests:
            column = overlay.snapshot.resources.column(name)
            largest = int(total[may_use, column].max(initial=0)) if column < total.shape[1] else 0
            if largest < amount:
                needed, has = format_amount(name, amount), format_amount(name, largest)
                text = f"a pod asks for {needed} of {name}, and the largest node that it may use has {has}"
                yield Limit("size", text, resource=name, needed=needed, available=has)


# Room


def capacity_limits(case: HeldWorkload) -> Iterator[Limit]:
    if case.has_topology_request:
        yield from _topology_limit(case)
    index = case.tightest_pod_set()
    part, space = case.pod_sets[index], case.feasibility(index)
    if part.shape.gpu is not None and not part.shape.gpu.profile:
        yield from _gpu_limits(case, part, space)
    yield from _node_limits(part, space)


def _topology_limit(case: HeldWorkload) -> Iterator[Limit]:
    """Asks the search again, on what is free after the decision."""
    overlay = case.state.overlay
    close = [part for part in case.pod_sets if part.topology is not None and part.tree is case.tree]
    assert case.tree is not None
    rows = [overlay.table.row(part.shape, overlay.snapshot, part.pod) for part in close]
    before = overlay.checkpoint()
    asks = [TopologyPodSetRequest(part.name, part.count, part.topology) for part in close]
    found = plan_topology(case.tree, asks, OverlayCapacity(overlay, close, rows), case.topology)
    overlay.rollback(before)
    if not isinstance(found, TopologyFailure):
        return
    level = found.level or next(part.topology.level for part in close if part.topology is not None)
    what = "slices" if found.unit == "slice" else "pods"
    text = found.message
    if found.level and found.needed:
        where = f"one {level_name(level)}" if level else "the topology"
        its = f"its {found.needed} {what}" if found.needed > 1 else "it"
        text = f"no place for {its} within {where}: {found.fits} would fit at the most"
    yield Limit("topology", text, level=level, needed=str(found.needed or ""), available=str(found.fits))


def _gpu_limits(case: HeldWorkload, part: PendingPodSet, space: PodSetFeasibility) -> Iterator[Limit]:
    gpu = part.shape.gpu
    assert gpu is not None
    sums = case.gpu_totals()
    unit = 1 if gpu.milli == WHOLE_MILLI else WHOLE_MILLI
    free = sum(sums.free_by_node)
    bits = {bit for bit, _ in space.reason_counts()}
    # Without any reason, each node takes pods: just not enough of them.
    if (_lacks_gpus(part, bits) or not bits) and gpu.milli and space.placeable < part.count:
        pieces = ", ".join(f"{piece / unit:g}" for piece in sums.free_by_node[:MAX_LISTED_NODES])
        more = (
            f" and {len(sums.free_by_node) - MAX_LISTED_NODES} more"
            if len(sums.free_by_node) > MAX_LISTED_NODES
            else ""
        )
        each = f"{gpu.count * gpu.milli / WHOLE_MILLI:g}"
        if sums.are_fragmented and space.pod_set.count:
            text = (
                f"fragmentation: {free / unit:g} GPUs are free ({pieces}{more} by node), but "
                f"{_finders(space.placeable, part.count)} {each} on one node"
            )
            kind = "fragmentation"
        else:
            asked = sums.requested / WHOLE_MILLI
            text = f"{free / unit:g} GPUs are free on nodes that it may use, and it asks for {asked:g}"
            kind = "resource"
        needed, nodes = f"{sums.requested / WHOLE_MILLI:g}", int(np.count_nonzero(space.pods_per_node == 0))
        yield Limit(kind, text, resource=GPU, needed=needed, available=f"{free / unit:g}", nodes=nodes)
    yield from _pinned(case, part, space)


def _lacks_gpus(part: PendingPodSet, bits: set[int]) -> bool:
    room = WHY_GPU_DEVICE_ROOM.bit_length() - 1
    names = [part.shape.requests[bit - FIRST_RESOURCE_BIT][0] for bit in bits if bit >= FIRST_RESOURCE_BIT]
    return room in bits or any(name.startswith(GPU) for name in names)


def _pinned(case: HeldWorkload, part: PendingPodSet, space: PodSetFeasibility) -> Iterator[Limit]:
    """GPUs that are free and that nothing but the pod's own wish for a model or a kind of node keeps it from."""
    other = other_models(part, space)
    if not other:
        return
    total = sum(other.values())
    named = ", ".join(
        f"{count} {name}" for name, count in sorted(other.items(), key=lambda one: (-one[1], one[0]))
    )
    own = any(one.template.spec.node_selector or one.template.spec.affinity for one in case.piece.pod_sets)
    wish = pinned_to(part)
    text = f"its pin to {wish or 'certain nodes'} strands {total} free GPUs of other models or nodes: {named}"
    if wish and not own and not (part.shape.gpu and part.shape.gpu.models):
        text = f"its flavor is nodes with {wish} only, which leaves out {total} free GPUs of others: {named}"
    nodes = int(np.count_nonzero(space.reasons & np.uint64(MODEL_OR_AFFINITY_BITS)))
    yield Limit("model", text, resource=GPU, available=str(total), nodes=nodes)


def other_models(part: PendingPodSet, space: PodSetFeasibility) -> dict[str, int]:
    """Model → whole free GPUs that the pod's pin keeps it from."""
    overlay, gpu = space.overlay, part.shape.gpu
    if gpu is None or gpu.profile or not (gpu.models or pinned_to(part)):
        return {}
    blocked = np.uint64((1 << 16) - 1) & ~np.uint64(MODEL_OR_AFFINITY_BITS)
    reachable = (space.reasons & blocked) == 0
    affine = (overlay.table.cells.static[space.row] & np.uint64(WHY_NODE_AFFINITY)) == 0
    allowed = overlay.snapshot.gpu_models.mask(gpu.models)
    found: dict[str, int] = {}
    for code, name in enumerate(overlay.snapshot.gpu_models.names):
        free = free_gpus(overlay, part.shape, (name,))
        refused = reachable & ~affine if allowed >> code & 1 else reachable
        count = int(free[refused].sum())
        if count:
            found[name or "of no known model"] = count
    return found


def pinned_to(part: PendingPodSet) -> str:
    """The model or the labels that the pod insists on."""
    spec, gpu = part.pod.spec, part.shape.gpu
    if gpu is not None and gpu.models:
        return " or ".join(dict.fromkeys(gpu.models))
    if GPU_PRODUCT_LABEL in spec.node_selector:
        return spec.node_selector[GPU_PRODUCT_LABEL]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_expressions:
            if one.key == GPU_PRODUCT_LABEL and one.operator == "In":
                return " or ".join(one.values)
    return ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))


def _node_limits(part: PendingPodSet, space: PodSetFeasibility) -> Iterator[Limit]:
    """One for every other reason that nodes have."""
    for bit, nodes in space.reason_counts():
        name = part.shape.requests[bit - FIRST_RESOURCE_BIT][0] if bit >= FIRST_RESOURCE_BIT else ""
        if name.startswith(GPU) or bit == WHY_GPU_DEVICE_ROOM.bit_length() - 1:
            continue
        if name and name != "pods":
            most = format_amount(name, int(space.free(name)[space.eligible_nodes].max(initial=0)))
            asked = format_amount(name, dict(part.shape.requests)[name])
            text = (
                f"{_nodes(nodes)} too little {name} free: it asks for {asked} a pod, and a node that it may use has "
                f"{most} at the most"
            )
            yield Limit("resource", text, resource=name, needed=asked, available=most, nodes=nodes)
        else:
            reason = reason_of(part.shape, bit)
            kind = "resource" if name == "pods" else "rules"
            yield Limit(kind, f"{nodes} {reason.kube}", resource=name, nodes=nodes)


def _nodes(count: int) -> str:
    return "1 node has" if count == 1 else f"{count} nodes have"


def _finders(fitting: int, count: int) -> str:
    if not fitting:
        return "no pod of it finds" if count > 1 else "it doesn't find"
    return f"only {fitting} of its {count} pods {'finds' if fitting == 1 else 'find'}"
