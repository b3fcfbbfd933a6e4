"""Groups of pods that start together, as four schedulers write them, as one noun.

Decoded by `model.codec`; `cluster.workloads` looks up the group that a pod names. The kinds are all called PodGroup:
the coscheduling plugin's (`scheduling.x-k8s.io`), Volcano's (`scheduling.volcano.sh`), KAI's (`scheduling.run.ai`) and
Kubernetes' own (`scheduling.k8s.io`). Field names are interfaces of those projects (Apache-2.0).
"""

from __future__ import annotations

import msgspec

from windlass.model.errors import InputError
from windlass.model.group_membership import KAI
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.queue_names import KAI_PREFIX, VOLCANO_PREFIX
from windlass.model.topology_request import MAX_PODS
from windlass.model.validation import check_priority
from windlass.model.workload import TopologyRequest

NOT_IMPLEMENTED = "NOT_IMPLEMENTED"


class PodGroup(msgspec.Struct, frozen=True):
    """What a group says of itself; its members say the rest."""

    metadata: ObjectMeta
    api_group: str
    """API group of its kind, which pods of it refer to in different ways."""
    min_pods: int
    """Members with which it may start."""
    priority: int | None = None
    priority_class: str = ""
    preemption_policy: str = ""
    topology: TopologyRequest | None = None
    all_or_nothing: bool = True
    queue: str = ""
    """As `model.queue_names` writes it; empty where its spec names none."""
    hold: str = ""
    """A field that asks for something which is not implemented, by its path."""
    preemptibility: str = ""
    """KAI's word, if its spec has one: preemptible or non-preemptible."""
    has_task_minimums: bool = False
    """Volcano: each task has a minimum of its own. `min_pods` is only their sum."""

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class PodGroupObject(KubeStruct, frozen=True):
    """Base of the four kinds."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()


class CoschedulingSpec(KubeStruct, frozen=True):
    min_member: int = 1


class CoschedulingPodGroup(PodGroupObject, frozen=True):
    spec: CoschedulingSpec = CoschedulingSpec()


class VolcanoNetworkTopology(KubeStruct, frozen=True):
    mode: str = "hard"


class VolcanoSubGroup(KubeStruct, frozen=True):
    name: str = ""


class VolcanoSpec(KubeStruct, frozen=True):
    min_member: int = 1
    queue: str = ""
    min_task_member: dict[str, int] = msgspec.field(default_factory=dict)
    priority_class_name: str = ""
    network_topology: VolcanoNetworkTopology | None = None
    sub_group_policy: tuple[VolcanoSubGroup, ...] = ()


class VolcanoPodGroup(PodGroupObject, frozen=True):
    spec: VolcanoSpec = VolcanoSpec()


class KaiTopologyConstraint(KubeStruct, frozen=True):
    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(KubeStruct, frozen=True):
    name: str = ""
    parent: str = ""
    min_member: int = 0
    min_sub_group: int | None = None
    topology_constraint: KaiTopologyConstraint | None = None


class KaiSpec(KubeStruct, frozen=True):
    min_member: int = 1
    min_sub_group: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()


class KaiPodGroup(PodGroupObject, frozen=True):
    spec: KaiSpec = KaiSpec()


class GangPolicy(KubeStruct, frozen=True):
    min_count: int = 1


class SchedulingPolicy(KubeStruct, frozen=True):
    """Either field; `basic` means that members are placed one by one."""

    gang: GangPolicy | None = None


class TopologyConstraint(KubeStruct, frozen=True):
    key: str = ""


class SchedulingConstraints(KubeStruct, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()


class Everything(KubeStruct, frozen=True):
    """The empty object that stands for a choice."""


class DisruptionMode(KubeStruct, frozen=True):
    all: Everything | None = None


class GroupClaim(KubeStruct, frozen=True):
    name: str = ""


class NativeSpec(KubeStruct, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    disruption_mode: str | DisruptionMode = ""
    """`all` or `single` as a choice of objects; v1alpha2 had the words PodGroup and Pod."""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    parent_composite_pod_group_name: str = ""
    resource_claims: tuple[GroupClaim, ...] = ()


class NativePodGroup(PodGroupObject, frozen=True):
    spec: NativeSpec = NativeSpec()


def pod_group_from_object(wire: PodGroupObject) -> PodGroup:
    """The group that the object describes; refuses what its API server would refuse."""
    if not wire.metadata.name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    if isinstance(wire, VolcanoPodGroup):
        return _volcano(wire)
    if isinstance(wire, NativePodGroup):
        return _native(wire)
    if isinstance(wire, KaiPodGroup):
        return _kai(wire)
    assert isinstance(wire, CoschedulingPodGroup), wire
    minimum = _minimum(wire.spec.min_member, "spec.minMember")
    return PodGroup(wire.metadata, "scheduling.x-k8s.io", minimum)


def _volcano(wire: VolcanoPodGroup) -> PodGroup:
    spec = wire.spec
    tasks = sum(_minimum(count, f"spec.minTaskMember.{task}") for task, count in spec.min_task_member.items())
    hold = ""
    if spec.network_topology is not None and spec.network_topology.mode == "hard":
        hold = "spec.networkTopology: tiers of HyperNodes are not implemented"
    elif spec.sub_group_policy:
        hold = "spec.subGroupPolicy: subgroups with a minimum of their own are not implemented"
    return PodGroup(
        wire.metadata,
        "scheduling.volcano.sh",
        max(_minimum(spec.min_member, "spec.minMember"), tasks),
        priority_class=spec.priority_class_name,
        queue=f"{VOLCANO_PREFIX}{spec.queue}" if spec.queue else "",
        hold=hold,
        has_task_minimums=len(spec.min_task_member) > 1,
    )


def _kai(wire: KaiPodGroup) -> PodGroup:
    """KAI's group: its minimum, or those of its sub-groups, which are met together only where they cover all pods."""
    spec = wire.spec
    parents = {sub_group.parent for sub_group in spec.sub_groups}
    leaves = [sub_group for sub_group in spec.sub_groups if sub_group.name not in parents]
    minimums = [_minimum(leaf.min_member, f"spec.subGroups.{leaf.name}.minMember") for leaf in leaves]
    constrained = next((one.name for one in spec.sub_groups if _kai_topology(one.topology_constraint)), "")
    hold = ""
    if any(sub_group.min_sub_group is not None for sub_group in spec.sub_groups) or spec.min_sub_group is not None:
        hold = "spec.minSubGroup: not implemented"
    elif constrained:
        hold = f"spec.subGroups.{constrained}.topologyConstraint: not implemented"
    return PodGroup(
        wire.metadata,
        KAI,
        max(_minimum(spec.min_member, "spec.minMember"), sum(minimums)),
        priority_class=spec.priority_class_name,
        topology=_kai_topology(spec.topology_constraint),
        queue=f"{KAI_PREFIX}{spec.queue}" if spec.queue else "",
        preemptibility=spec.preemptibility,
        all_or_nothing=False,
        hold=hold,
        has_task_minimums=len(leaves) > 1,
    )


def _kai_topology(constraint: KaiTopologyConstraint | None) -> TopologyRequest | None:
    if constraint is None:
        return None
    if constraint.required_topology_level:
        return TopologyRequest("required", constraint.required_topology_level)
    if constraint.preferred_topology_level:
        return TopologyRequest("preferred", constraint.preferred_topology_level)
    return None


def _native(wire: NativePodGroup) -> PodGroup:
    spec = wire.spec
    gang = spec.scheduling_policy.gang
    minimum = 1 if gang is None else _minimum(gang.min_count, "spec.schedulingPolicy.gang.minCount")
    mode = spec.disruption_mode
    check_priority(spec.priority, "spec.priority")
    return PodGroup(
        wire.metadata,
        "scheduling.k8s.io",
        minimum,
        priority=spec.priority,
        priority_class=spec.priority_class_name,
        preemption_policy=spec.preemption_policy,
        topology=_native_topology(spec.scheduling_constraints.topology),
        all_or_nothing=mode == "PodGroup" if isinstance(mode, str) else mode.all is not None,
        hold=_native_hold(spec),
    )


def _native_topology(constraints: tuple[TopologyConstraint, ...]) -> TopologyRequest | None:
    path = "spec.schedulingConstraints.topology"
    if len(constraints) > 1:
        raise InputError(f"{len(constraints)} topology constraints", path=path, remedy="keep one")
    if not constraints:
        return None
    if not constraints[0].key:
        raise InputError("a constraint is a node label", path=f"{path}[0].key", remedy="name one")
    return TopologyRequest("required", constraints[0].key)


def _native_hold(spec: NativeSpec) -> str:
    if spec.parent_composite_pod_group_name:
        return "spec.parentCompositePodGroupName: groups of groups are not implemented"
    if spec.resource_claims:
        return "spec.resourceClaims: claims of a group are not implemented"
    return ""


def _minimum(count: int, path: str) -> int:
    if not 0 <= count <= MAX_PODS:
        raise InputError(f"{count} members", path=path, remedy=f"use 1 to {MAX_PODS}")
    return count
