"""All queue objects of a cluster as one `QueueSystem`: what belongs together by name, and what is missing.

Takes whatever objects there are (anything that is not about queues is passed over) and feeds `queueing`. A queue whose
flavor or topology does not exist, that hangs in a cycle of cohorts, or that uses a field which is not implemented, is
in the system and inactive, with the reason in it.
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
from windlass.model.volume import Namespace


def queue_system(objects: Iterable[object]) -> QueueSystem:
    """What the queue kinds among `objects` say; a later object of the same name replaces an earlier one."""
    system = QueueSystem(priority_classes=dict(SYSTEM_PRIORITIES))
    troubles: dict[tuple[type, str], str] = {}
    for thing in objects:
        try:
            system = _with(system, thing)
        except InputError as error:
            name = getattr(thing, "name", "")
            raise error.with_context(object=f"{type(thing).__name__.removesuffix('Object')} {name}") from None
        if isinstance(thing, QueueObject) and thing.unread_fields:
            troubles[type(thing), thing.name] = unimplemented_fields_message(thing.unread_fields)
    cohorts = _with_implied(system.queues.values(), system.cohorts)
    system = msgspec.structs.replace(system, cohorts=cohorts)
    queues = {name: _checked(queue, system, troubles) for name, queue in system.queues.items()}
    return msgspec.structs.replace(system, queues=queues)


def _with(system: QueueSystem, thing: object) -> QueueSystem:
    """Enters one object. The maps belong to the system under construction, so they are filled in place."""
    match thing:
        case ClusterQueueObject():
            system.queues[thing.name] = cluster_queue_from_object(thing)
        case CohortObject():
            system.cohorts[thing.name] = cohort_from_object(thing)
        case LocalQueueObject():
            queue = local_queue_from_object(thing)
            system.local_queues[queue.key] = queue
        case ResourceFlavorObject():
            system.flavors[thing.name] = resource_flavor_from_object(thing)
        case TopologyObject():
            system.topologies[thing.name] = topology_from_object(thing)
        case WorkloadPriorityClassObject():
            system.workload_priority_classes[thing.name] = thing.value
        case Namespace():
            system.namespaces[thing.metadata.name] = thing.metadata.labels
        case PriorityClass():
            return _with_priority_class(system, thing)
        case _:
            pass
    return system


def _with_priority_class(system: QueueSystem, thing: PriorityClass) -> QueueSystem:
    name = thing.metadata.name
    system.priority_classes[name] = thing.value
    if thing.preemption_policy == "Never":
        system = msgspec.structs.replace(
            system, non_preempting_classes=system.non_preempting_classes | {name}
        )
    if thing.global_default and _is_lower_default(system, thing):
        system = msgspec.structs.replace(system, default_priority_class=name)
    return system


def _is_lower_default(system: QueueSystem, other: PriorityClass) -> bool:
    """Of several default classes the lowest value counts, as in the API server; of equal ones the first name."""
    name = system.default_priority_class
    return not name or (other.value, other.metadata.name) < (system.priority_classes[name], name)


def _with_implied(queues: Iterable[ClusterQueue], cohorts: Mapping[str, Cohort]) -> dict[str, Cohort]:
    """Cohorts exist by being named; those without an object of their own have no quota and no parent."""
    named = [queue.cohort for queue in queues] + [one.parent for one in cohorts.values()]
    implied = {name: Cohort(name) for name in sorted(named) if name and name not in cohorts}
    return {**cohorts, **implied}


def _checked(
    queue: ClusterQueue, system: QueueSystem, troubles: Mapping[tuple[type, str], str]
) -> ClusterQueue:
    """The queue, inactive where something that it rests on is not there or not understood."""
    reason = (
        queue.inactive_reason
        or _flavor_trouble(queue, system, troubles)
        or _cohort_trouble(queue, system, troubles)
    )
    return msgspec.structs.replace(queue, inactive_reason=reason) if reason else queue


def _flavor_trouble(
    queue: ClusterQueue, system: QueueSystem, troubles: Mapping[tuple[type, str], str]
) -> str:
    for quotas in (quotas for group in queue.resource_groups for quotas in group.flavors):
        flavor = system.flavors.get(quotas.flavor)
        if flavor is None:
            return f"flavor {quotas.flavor} not found"
        trouble = troubles.get((ResourceFlavorObject, flavor.name))
        if trouble:
            return f"ResourceFlavor {flavor.name}: {trouble}"
        if flavor.topology and flavor.topology not in system.topologies:
            return f"topology {flavor.topology} of flavor {flavor.name} not found"
        trouble = troubles.get((TopologyObject, flavor.topology))
        if trouble:
            return f"Topology {flavor.topology}: {trouble}"
    return ""


def _cohort_trouble(
    queue: ClusterQueue, system: QueueSystem, troubles: Mapping[tuple[type, str], str]
) -> str:
    """Along the way up: a field that is not understood, or a cycle, which takes down the whole tree."""
    path: list[str] = []
    name = queue.cohort
    while name:
        if name in path:
            return f"cohorts form a cycle: {' > '.join([*path[path.index(name) :], name])}"
        trouble = troubles.get((CohortObject, name))
        if trouble:
            return f"Cohort {name}: {trouble}"
        path.append(name)
        name = system.cohorts[name].parent
    return ""
