"""The objects that define workloads, by kind.

`workload_index` keeps one up to date; `grouping_inputs` fills one from a set of decoded objects. `units` and
`build_workload` read it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from windlass.model.kueue import WorkloadObject, queue_system
from windlass.model.meta import ObjectMeta
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.namespace_limits import LimitRange, ResourceQuota
from windlass.model.node import Node
from windlass.model.owners import Owner, OwnerObject, owner_from_object
from windlass.model.pod import Pod
from windlass.model.pod_defaults import RuntimeClass
from windlass.model.pod_group import PodGroup, PodGroupObject, pod_group_from_object
from windlass.model.queue import QueueSystem
from windlass.model.quota import cluster_capacity


class GroupingInputs(msgspec.Struct, frozen=True):
    queue_system: QueueSystem = QueueSystem()
    now: int = 0
    """The creation time of objects that were not submitted yet."""
    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, Node] = msgspec.field(default_factory=dict)
    workloads: Mapping[str, WorkloadObject] = msgspec.field(default_factory=dict)
    """By key."""
    pod_groups: Mapping[tuple[str, str], PodGroup] = msgspec.field(default_factory=dict)
    """By API group and key."""
    owners: Mapping[tuple[str, str], Owner] = msgspec.field(default_factory=dict)
    """By kind and key."""
    limit_ranges: tuple[LimitRange, ...] = ()
    runtime_classes: Mapping[str, RuntimeClass] = msgspec.field(default_factory=dict)
    resource_quotas: tuple[ResourceQuota, ...] = ()
    hostnames: Mapping[str, str] = msgspec.field(default_factory=dict)
    """`kubernetes.io/hostname` label → node."""
    unreadable_pods: Container[str] | None = None
    """Pods whose requests can't be read; None where nobody has read them yet."""


def grouping_inputs(objects: Iterable[object], now: int) -> GroupingInputs:
    """Of several objects of the same kind and name, the last one counts."""
    all_objects = list(objects)
    pods: dict[str, Pod] = {}
    nodes: dict[str, Node] = {}
    workloads: dict[str, WorkloadObject] = {}
    groups: dict[tuple[str, str], PodGroup] = {}
    owners: dict[tuple[str, str], Owner] = {}
    for obj in all_objects:
        match obj:
            case Pod():
                pods[obj.key] = obj
            case Node():
                nodes[obj.name] = obj
            case WorkloadObject():
                workloads[obj.key] = obj
            case PodGroupObject():
                pod_group = pod_group_from_object(obj)
                groups[pod_group.api_group, pod_group.key] = pod_group
            case OwnerObject():
                owner = owner_from_object(obj)
                owners[owner.kind, owner.key] = owner
            case _:
                pass
    return GroupingInputs(
        queue_system=queue_system(all_objects, cluster_capacity(nodes.values())),
        now=now,
        pods=tuple(pods.values()),
        nodes=nodes,
        hostnames={node.labels.get(HOSTNAME_LABEL, name): name for name, node in sorted(nodes.items(), reverse=True)},
        workloads=workloads,
        pod_groups=groups,
        owners=owners,
        limit_ranges=tuple(obj for obj in all_objects if isinstance(obj, LimitRange)),
        runtime_classes={obj.metadata.name: obj for obj in all_objects if isinstance(obj, RuntimeClass)},
        resource_quotas=tuple(obj for obj in all_objects if isinstance(obj, ResourceQuota)),
    )


def is_submitted(metadata: ObjectMeta) -> bool:
    """Whether an API server has seen the object; else it comes from a manifest."""
    return bool(metadata.uid or metadata.creation_timestamp)
