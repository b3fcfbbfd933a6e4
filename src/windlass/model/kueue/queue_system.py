"""Builds the `QueueSystem` of a cluster from all its queue objects, with references resolved and checked.

Called by `cluster`; objects of other kinds are ignored. A queue is inactive, with the reason, if its flavor or topology
does not exist, if its cohorts form a cycle, or if it uses a field which is not implemented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue.queue_wire import (
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    QueueObject,
    ResourceFlavorObject,
    TopologyObject,
    WorkloadPriorityClassObject,
)
from windlass.model.kueue.queues import (
    cluster_queue_from_object,
    cohort_from_object,
    local_queue_from_object,
    resource_flavor_from_object,
    topology_from_object,
    unimplemented_fields_message,
)
from windlass.model.priority import SYSTEM_PRIORITIES, PriorityClass
from windlass.model.queue import ClusterQueue, Cohort, QueueSystem
from windlass.model.queue_names import KAI_PREFIX, VOLCANO_PREFIX
from windlass.model.shared_queues.kai import KaiQueueObject, kai_queue_from_object
from windlass.model.shared_queues.quota_tree import SharedQueue, SharedTree
from windlass.model.shared_queues.volcano import ROOT_QUEUE, VolcanoQueueObject, volcano_queue_from_object
from windlass.model.volume import Namespace

VOLCANO_ROOT = f"{VOLCANO_PREFIX}{ROOT_QUEUE}"


def queue_system(objects: Iterable[object], capacity: Mapping[str, int] | None = None) -> QueueSystem:
    """The queue system of these objects; a later object of the same name replaces an earlier one.

    `capacity` is what all nodes have, in units of quota; only queues of other schedulers ask for it.
    """
    system = QueueSystem(priority_classes=dict(SYSTEM_PRIORITIES))
    problems: dict[tuple[type, str], str] = {}
    shared: dict[str, SharedQueue] = {}
    for obj in objects:
        try:
            if isinstance(obj, KaiQueueObject | VolcanoQueueObject):
                queue = _shared_queue(obj)
                shared[queue.name] = queue
                continue
            system = _with(system, obj)
        except InputError as error:
            name = getattr(obj, "name", "")
            raise error.with_context(object=f"{type(obj).__name__.removesuffix('Object')} {name}") from None
        if isinstance(obj, QueueObject) and obj.unread_fields:
            problems[type(obj), obj.name] = unimplemented_fields_message(obj.unread_fields)
    _add_shared(system, shared, capacity)
    cohorts = _with_implied(system.queues.values(), system.cohorts)
    system = msgspec.structs.replace(system, cohorts=cohorts)
    queues = {name: _checked(queue, system, problems) for name, queue in system.queues.items()}
    return msgspec.structs.replace(system, queues=queues)


def has_shared_queues(objects: Iterable[object]) -> bool:
    return any(isinstance(obj, KaiQueueObject | VolcanoQueueObject) for obj in objects)


def _shared_queue(obj: KaiQueueObject | VolcanoQueueObject) -> SharedQueue:
    return kai_queue_from_object(obj) if isinstance(obj, KaiQueueObject) else volcano_queue_from_object(obj)


def _add_shared(system: QueueSystem, shared: Mapping[str, SharedQueue], capacity: Mapping[str, int] | None) -> None:
    for prefix, root in ((KAI_PREFIX, ""), (VOLCANO_PREFIX, VOLCANO_ROOT)):
        queues = [queue for name, queue in shared.items() if name.startswith(prefix) and name != root]
        limits = shared[root].limit if root in shared else {}
        if capacity is not None:
            known = capacity
            limits = {resource: min(amount, limits.get(resource, amount)) for resource, amount in known.items()}
        SharedTree(prefix, queues, limits if capacity is not None else None).add_to(system)


def _with(system: QueueSystem, obj: object) -> QueueSystem:
    """Adds one object. The maps belong to the system under construction, so they are filled in place."""
    match obj:
        case ClusterQueueObject():
            system.queues[obj.name] = cluster_queue_from_object(obj)
        case CohortObject():
            system.cohorts[obj.name] = cohort_from_object(obj)
        case LocalQueueObject():
            queue = local_queue_from_object(obj)
            system.local_queues[queue.key] = queue
        case ResourceFlavorObject():
            system.flavors[obj.name] = resource_flavor_from_object(obj)
        case TopologyObject():
            system.topologies[obj.name] = topology_from_object(obj)
        case WorkloadPriorityClassObject():
            system.workload_priority_classes[obj.name] = obj.value
        case Namespace():
            system.namespaces[obj.metadata.name] = obj.metadata.labels
        case PriorityClass():
            return _with_priority_class(system, obj)
        case _:
            pass
    return system


def _with_priority_class(system: QueueSystem, obj: PriorityClass) -> QueueSystem:
    name = obj.metadata.name
    system.priority_classes[name] = obj.value
    if obj.preemption_policy == "Never":
        system = msgspec.structs.replace(system, non_preempting_classes=system.non_preempting_classes | {name})
    if obj.global_default and _is_lower_default(system, obj):
        system = msgspec.structs.replace(system, default_priority_class=name)
    return system


def _is_lower_default(system: QueueSystem, other: PriorityClass) -> bool:
    """Of several default classes the lowest value counts, as in the API server; of equal ones the first name."""
    name = system.default_priority_class
    return not name or (other.value, other.metadata.name) < (system.priority_classes[name], name)


def _with_implied(queues: Iterable[ClusterQueue], cohorts: Mapping[str, Cohort]) -> dict[str, Cohort]:
    """A cohort exists once a queue names it; without an object it has no quota and no parent."""
    named = [queue.cohort for queue in queues] + [cohort.parent for cohort in cohorts.values()]
    implied = {name: Cohort(name) for name in sorted(named) if name and name not in cohorts}
    return {**cohorts, **implied}


def _checked(queue: ClusterQueue, system: QueueSystem, problems: Mapping[tuple[type, str], str]) -> ClusterQueue:
    """The queue, inactive if something it refers to is missing or not implemented."""
    reason = (
        queue.inactive_reason or _flavor_problem(queue, system, problems) or _cohort_problem(queue, system, problems)
    )
    return msgspec.structs.replace(queue, inactive_reason=reason) if reason else queue


def _flavor_problem(queue: ClusterQueue, system: QueueSystem, problems: Mapping[tuple[type, str], str]) -> str:
    for quotas in (quotas for group in queue.resource_groups for quotas in group.flavors):
        flavor = system.flavors.get(quotas.flavor)
        if flavor is None:
            return f"flavor {quotas.flavor} not found"
        problem = problems.get((ResourceFlavorObject, flavor.name))
        if problem:
            return f"ResourceFlavor {flavor.name}: {problem}"
        if flavor.topology and flavor.topology not in system.topologies:
            return f"topology {flavor.topology} of flavor {flavor.name} not found"
        problem = problems.get((TopologyObject, flavor.topology))
        if problem:
            return f"Topology {flavor.topology}: {problem}"
    return ""


def _cohort_problem(queue: ClusterQueue, system: QueueSystem, problems: Mapping[tuple[type, str], str]) -> str:
    """A problem of a cohort above the queue: a field that is not implemented, or a cycle."""
    path: list[str] = []
    name = queue.cohort
    while name:
        if name in path:
            return f"cohorts form a cycle: {' > '.join([*path[path.index(name) :], name])}"
        problem = problems.get((CohortObject, name))
        if problem:
            return f"Cohort {name}: {problem}"
        path.append(name)
        name = system.cohorts[name].parent
    return ""
