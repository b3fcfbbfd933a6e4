"""Groups of pods that start together, as three schedulers write them, as one noun.

Decoded by `model.codec`; `cluster.workloads` looks up the group that a pod names. The kinds are all called PodGroup:
the coscheduling plugin's (`scheduling.x-k8s.io`), Volcano's (`scheduling.volcano.sh`) and Kubernetes' own
(`scheduling.k8s.io`). Field names are interfaces of those projects (Apache-2.0).
"""

from __future__ import annotations

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
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
    hold: str = ""
    """A field that asks for something which is not implemented, by its path."""
    has_task_minimums: bool = False
    """Volcano: each task has a minimum of its own. `min_pods` is only their sum."""

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class PodGroupObject(KubeStruct, frozen=True):
    """Base of the three kinds."""

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
    min_task_member: dict[str, int] = msgspec.field(default_factory=dict)
    priority_class_name: str = ""
    network_topology: VolcanoNetworkTopology | None = None
    sub_group_policy: tuple[VolcanoSubGroup, ...] = ()


class VolcanoPodGroup(PodGroupObject, frozen=True):
    spec: VolcanoSpec = VolcanoSpec()


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
        hold=hold,
        has_task_minimums=len(spec.min_task_member) > 1,
    )


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
