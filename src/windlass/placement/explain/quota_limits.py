"""How much quota a held workload lacks: the numbers of the flavors that its pods may use, after the decision.

`limits` asks for them when it explains a hold, `advisor` whether the queue could ever have enough. The texts are
public: they name only the workload's own queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.queue import ResourceGroup
from windlass.model.queue_names import describe_cluster_queue, is_shared_queue
from windlass.model.quota import MILLI_PER_GPU
from windlass.model.requests import format_amount
from windlass.model.verdict import Limit
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.queueing.pending_workload import PODS
from windlass.queueing.quota_node import FlavorResource, QuotaNode


def quota_limits(held: HeldWorkload) -> Iterator[Limit]:
    """For each resource of which the queue has too little left: the flavor with most left, of those that it may use."""
    node = held.state.occupancy.cluster_queue_of(held.piece)
    if node is None:
        return
    held.state.occupancy.set_quota_at(held.state.now, ())
    for resource, needed in sorted(_requested(held).items()):
        group = _group_of(node, resource)
        if group is None:
            is_ignored = held.state.queues.ignore_undeclared or node.spec.ignores_undeclared
            if resource != PODS and not is_ignored:
                text = f"{describe_cluster_queue(node.name)} has no quota for {resource}"
                yield Limit("quota", text, node.name, resource=resource)
            continue
        cells = _usable_cells(held, node, group, resource)
        best = max(cells, key=lambda cell: _left(held, node, cell), default=None)
        if best is not None and _left(held, node, best) < needed:
            yield _quota_limit(held, node, best, needed)


def unused_quota_limit(held: HeldWorkload) -> Limit | None:
    """For a workload that quota refuses though enough is left of every resource, each taken by itself."""
    node = held.state.occupancy.cluster_queue_of(held.piece)
    if node is None:
        return None
    queue = describe_cluster_queue(node.name)
    if not held.lacks_quota:
        text = f"{queue} has enough quota left, but workloads ahead of this one get it first"
        return Limit("quota", text, node.name)
    held.state.occupancy.set_quota_at(held.state.now, ())
    listed = []
    for resource, needed in sorted(_requested(held).items()):
        group = _group_of(node, resource)
        cells = _usable_cells(held, node, group, resource) if group is not None else []
        if needed and cells:
            best = max(cells, key=lambda cell: _left(held, node, cell))
            listed.append(f"{quota_amount(resource, _left(held, node, best))} {resource} in flavor {best[0]}")
    text = f"{queue} has quota left, but not in flavors that its pods can use together: {', '.join(listed)}"
    return Limit("quota", text, node.name)


def exceeds_quota(held: HeldWorkload) -> bool:
    """Whether it requests more than its queue could have if nothing else used quota."""
    node = held.state.occupancy.cluster_queue_of(held.piece)
    if node is None:
        return False
    for resource, needed in _requested(held).items():
        group = _group_of(node, resource)
        cells = _usable_cells(held, node, group, resource) if group is not None else []
        if cells and all(_most(held, node, cell) < needed for cell in cells):
            return True
    return False


def quota_amount(resource: str, amount: int) -> str:
    """An amount of quota as people write it; quota counts GPUs in thousandths."""
    return f"{amount / MILLI_PER_GPU:g}" if resource == GPU_RESOURCE else format_amount(resource, amount)


def _quota_limit(held: HeldWorkload, node: QuotaNode, cell: FlavorResource, needed: int) -> Limit:
    flavor, resource = cell
    queue, where = describe_cluster_queue(node.name), f" in flavor {flavor}"
    if is_shared_queue(node.name):
        where = ""  # its only flavor is no object that people know
    left, most = (quota_amount(resource, amount(held, node, cell)) for amount in (_left, _most))
    requested = quota_amount(resource, needed)
    owned = resource if held.piece.may_borrow else f"{resource} of its own quota for non-preemptible work"
    if needed > _most(held, node, cell):
        text = f"it never starts: {queue} can have at most {most} {owned}{where}, {requested} requested"
    else:
        text = f"over quota: {queue} has {left} {owned} left{where}, {requested} requested"
    return Limit("quota", text, queue=node.name, flavor=flavor, resource=resource, needed=requested, available=left)


def _left(held: HeldWorkload, node: QuotaNode, cell: FlavorResource) -> int:
    """What it could get now; of work that may not borrow, what such work leaves of the queue's own quota."""
    if held.piece.may_borrow:
        return node.available(cell)
    users = (user for user in held.state.running() if not user.workload.may_borrow)
    usages = (user.queue_usage for user in users if user.queue_usage is not None)
    used = sum(usage.get(cell, 0) for queue, usage in usages if queue == node.name)
    return max(0, min(node.available(cell), node.quota(cell).nominal - used))


def _most(held: HeldWorkload, node: QuotaNode, cell: FlavorResource) -> int:
    """What it could get if nothing else used quota."""
    most = node.potential_available(cell)
    return most if held.piece.may_borrow else min(most, node.quota(cell).nominal)


def _requested(held: HeldWorkload) -> dict[str, int]:
    """Resource → amount over all pods, in units of quota (GPUs in thousandths)."""
    requested: dict[str, int] = {}
    for pod_set in held.piece.pod_sets:
        for resource, amount in held.state.placer.requests(held.piece, pod_set).items():
            requested[resource] = requested.get(resource, 0) + amount * pod_set.count
    return requested


def _group_of(node: QuotaNode, resource: str) -> ResourceGroup | None:
    return next((group for group in node.spec.resource_groups if resource in group.resources), None)


# Flavors that the pods may use


def _usable_cells(held: HeldWorkload, node: QuotaNode, group: ResourceGroup, resource: str) -> list[FlavorResource]:
    """The flavors that a pod set which asks for the resource may use, and that some flavor of every other requested
    resource goes together with: no node has two values of one label."""
    requested = _requested(held)
    others = [
        _eligible_flavors(held, other, name)
        for other in node.spec.resource_groups
        if other is not group
        for name in other.resources
        if requested.get(name)
    ]
    return [
        (flavor, resource)
        for flavor in _eligible_flavors(held, group, resource)
        if all(not names or any(_go_together(held, flavor, name) for name in names) for names in others)
    ]


def _eligible_flavors(held: HeldWorkload, group: ResourceGroup, resource: str) -> list[str]:
    placer, flavors = held.state.placer, held.state.occupancy.system.flavors
    asking = [pod_set for pod_set in held.piece.pod_sets if placer.requests(held.piece, pod_set).get(resource)]
    return [
        quotas.flavor
        for quotas in group.flavors
        if quotas.flavor in flavors
        and not quotas.inactive_reason
        and any(not placer.ineligible_reason(pod_set, flavors[quotas.flavor]) for pod_set in asking)
    ]


def _go_together(held: HeldWorkload, first: str, second: str) -> bool:
    flavors = held.state.occupancy.system.flavors
    labels = flavors[second].node_labels
    return all(labels.get(key, value) == value for key, value in flavors[first].node_labels.items())
