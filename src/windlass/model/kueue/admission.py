"""The admission of a Workload (flavors, usage, nodes) from `status.admission`.

Called by `model.kueue.workloads`. v1beta1 lists the domains of a topology assignment; v1beta2 compresses them into
slices that share values per level. Both come out as the same list of (level values, pods).
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.errors import InputError
from windlass.model.kueue.workload_wire import (
    AssignmentSlice,
    LevelValues,
    PodSetAssignmentStatus,
    PodTemplate,
    TopologyAssignmentStatus,
    WorkloadObject,
)
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.pod import Pod
from windlass.model.quota import parse_quota, quota_requests
from windlass.model.times import parse_timestamp
from windlass.model.topology_request import MAX_PODS
from windlass.model.workload import Admission, PodSetAssignment

Domains = tuple[tuple[tuple[str, ...], int], ...]
MAX_DOMAINS = 100_000
"""The limit of Kueue's schema; larger counts would exhaust the memory."""


def admission_of(wire: WorkloadObject, hostnames: Mapping[str, str]) -> Admission | None:
    """The workload's admission, or None, also if the condition QuotaReserved is False."""
    held = wire.status.admission
    if held is None or _reservation_denied(wire):
        return None
    reserved = wire.condition("QuotaReserved")
    return Admission(
        cluster_queue=held.cluster_queue,
        assignments=tuple(
            _assignment(wire, one, f"status.admission.podSetAssignments[{index}]", hostnames)
            for index, one in enumerate(held.pod_set_assignments)
        ),
        reserved_at=parse_timestamp(
            reserved.last_transition_time if reserved is not None else wire.metadata.creation_timestamp
        ),
    )


def _reservation_denied(wire: WorkloadObject) -> bool:
    return any(
        condition.type == "QuotaReserved" and condition.status == "False" for condition in wire.status.conditions
    )


def _assignment(
    wire: WorkloadObject, held: PodSetAssignmentStatus, path: str, hostnames: Mapping[str, str]
) -> PodSetAssignment:
    template, declared = _declared(wire, held.name)
    count = declared if held.count is None else held.count
    if not 0 <= count <= MAX_PODS:
        raise InputError(f"{count} pods", path=f"{path}.count", remedy=f"use 0 to {MAX_PODS}")
    gone = sum(reclaimable.count for reclaimable in wire.status.reclaimable_pods if reclaimable.name == held.name)
    running = min(count, max(0, declared - gone))
    usage = _usage(held, template, count, path)
    if running < count:
        usage = {name: amount * running // count for name, amount in usage.items()}
    assigned = held.topology_assignment
    domains = _domains(assigned, f"{path}.topologyAssignment") if assigned is not None else ()
    levels = assigned.levels if assigned is not None else ()
    return PodSetAssignment(
        name=held.name,
        count=running,
        flavors=dict(held.flavors),
        usage=usage,
        nodes=_nodes(domains, hostnames) if levels and levels[-1] == HOSTNAME_LABEL else {},
        domains=domains,
        levels=levels,
    )


def _declared(wire: WorkloadObject, name: str) -> tuple[PodTemplate, int]:
    """Template and size of the pod set; an assignment of a removed set still counts with its own numbers."""
    for spec in wire.spec.pod_sets:
        if spec.name == name:
            return spec.template, spec.count
    return PodTemplate(), MAX_PODS


def _usage(held: PodSetAssignmentStatus, template: PodTemplate, count: int, path: str) -> dict[str, int]:
    """The usage of the status; without one, the template's requests of the assigned flavors."""
    try:
        if held.resource_usage:
            return {name: parse_quota(name, raw) for name, raw in held.resource_usage.items()}
        asked = quota_requests(Pod(metadata=template.metadata, spec=template.spec))
    except InputError as error:
        raise InputError(error.message, path=f"{path}.resourceUsage", remedy=error.remedy) from None
    return {name: asked.get(name, 0) * count for name in held.flavors}


def _nodes(domains: Domains, hostnames: Mapping[str, str]) -> dict[str, int]:
    nodes: dict[str, int] = {}
    for values, count in domains:
        node = hostnames.get(values[-1], values[-1])
        nodes[node] = nodes.get(node, 0) + count
    return nodes


def _domains(assigned: TopologyAssignmentStatus, path: str) -> Domains:
    plain = [(domain.values, domain.count) for domain in assigned.domains]
    for index, part in enumerate(assigned.slices):
        plain.extend(_slice_domains(part, f"{path}.slices[{index}]"))
    for values, count in plain:
        if len(values) != len(assigned.levels) or not 0 <= count <= MAX_PODS:
            raise InputError(
                f"a domain of {len(values)} values and {count} pods beside {len(assigned.levels)} levels",
                path=path,
                remedy="every domain has one value a level",
            )
    return tuple(plain)


def _slice_domains(part: AssignmentSlice, path: str) -> list[tuple[tuple[str, ...], int]]:
    if not 0 <= part.domain_count <= MAX_DOMAINS:
        raise InputError(f"{part.domain_count} domains", path=f"{path}.domainCount", remedy="count them")
    size = part.domain_count
    columns = [_column(values, size, f"{path}.valuesPerLevel[{at}]") for at, values in enumerate(part.values_per_level)]
    counts = part.pod_counts
    pods = [counts.universal] * size if counts.universal is not None else list(counts.individual)
    if len(pods) != size:
        raise _uneven(len(pods), size, f"{path}.podCounts")
    return [(tuple(column[at] for column in columns), pods[at]) for at in range(size)]


def _column(values: LevelValues, size: int, path: str) -> list[str]:
    if values.universal is not None:
        return [values.universal] * size
    own = values.individual
    if own is None or len(own.roots) != size:
        raise _uneven(len(own.roots) if own else 0, size, path)
    return [f"{own.prefix}{root}{own.suffix}" for root in own.roots]


def _uneven(there: int, wanted: int, path: str) -> InputError:
    return InputError(f"{there} values for {wanted} domains", path=path, remedy="give one a domain, or a universal one")
