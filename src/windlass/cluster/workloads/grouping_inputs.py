"""Everything that says which pods belong together, sorted by what it is.

Built from the decoded objects of a dump, a manifest or a watch; `units` and `build` read it. One pass, no decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.kueue import WorkloadObject, queue_system
from windlass.model.meta import ObjectMeta
from windlass.model.namespace_limits import LimitRange, ResourceQuota
from windlass.model.node import Node
from windlass.model.owners import Owner, OwnerObject, owner_from_object
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroup, PodGroupObject, pod_group_from_object
from windlass.model.queue import QueueSystem

HOSTNAME = "kubernetes.io/hostname"


class GroupingInputs(msgspec.Struct, frozen=True):
    """What `group` works on. Objects that don't matter for grouping are not in it."""

    queue_system: QueueSystem = QueueSystem()
    now: int = 0
    """Stands for the creation of objects that were not submitted yet."""
    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, Node] = msgspec.field(default_factory=dict)
    workloads: Mapping[str, WorkloadObject] = msgspec.field(default_factory=dict)
    """By key."""
    pod_groups: Mapping[tuple[str, str], PodGroup] = msgspec.field(default_factory=dict)
    """By API group and key."""
    owners: Mapping[tuple[str, str], Owner] = msgspec.field(default_factory=dict)
    """By kind and key."""
    limit_ranges: tuple[LimitRange, ...] = ()
    resource_quotas: tuple[ResourceQuota, ...] = ()
    hostnames: Mapping[str, str] = msgspec.field(default_factory=dict)
    """`kubernetes.io/hostname` label → node."""


def grouping_inputs(objects: Iterable[object], now: int) -> GroupingInputs:
    """The objects that grouping reads, out of all there are; a later one of the same name replaces an earlier."""
    things = list(objects)
    pods: dict[str, Pod] = {}
    nodes: dict[str, Node] = {}
    workloads: dict[str, WorkloadObject] = {}
    groups: dict[tuple[str, str], PodGroup] = {}
    owners: dict[tuple[str, str], Owner] = {}
    for thing in things:
        match thing:
            case Pod():
                pods[thing.key] = thing
            case Node():
                nodes[thing.name] = thing
            case WorkloadObject():
                workloads[thing.key] = thing
            case PodGroupObject():
                made = pod_group_from_object(thing)
                groups[made.api_group, made.key] = made
            case OwnerObject():
                owner = owner_from_object(thing)
                owners[owner.kind, owner.key] = owner
            case _:
                pass
    return GroupingInputs(
        queue_system=queue_system(things),
        now=now,
        pods=tuple(pods.values()),
        nodes=nodes,
        hostnames={node.labels.get(HOSTNAME, name): name for name, node in nodes.items()},
        workloads=workloads,
        pod_groups=groups,
        owners=owners,
        limit_ranges=tuple(thing for thing in things if isinstance(thing, LimitRange)),
        resource_quotas=tuple(thing for thing in things if isinstance(thing, ResourceQuota)),
    )


def is_submitted(metadata: ObjectMeta) -> bool:
    """Whether an API server has seen the object; what it has not seen yet comes from a manifest."""
    return bool(metadata.uid or metadata.creation_timestamp)
