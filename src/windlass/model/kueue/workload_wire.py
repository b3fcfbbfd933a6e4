"""Kueue's Workload as it stands in the API, v1beta1 and v1beta2 in one.

Decoded by `model.codec`; `model.kueue.workloads` makes a `model.workload.Workload` of it. Field names are Kueue's
interface (Apache-2.0).
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import PodSpec, RawQuantity


class TopologyConstraintSpec(KubeStruct, frozen=True):
    topology: str
    size: int


class PodSetTopologyRequest(KubeStruct, frozen=True):
    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    pod_set_group_name: str = ""
    pod_set_slice_required_topology: str = ""
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: tuple[TopologyConstraintSpec, ...] = ()
    """Layers of slices, the widest first."""


class PodTemplate(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class PodSetSpec(KubeStruct, frozen=True):
    name: str = "main"
    template: PodTemplate = PodTemplate()
    count: int = 1
    min_count: int | None = None
    topology_request: PodSetTopologyRequest | None = None


class PriorityClassRef(KubeStruct, frozen=True):
    group: str = ""
    kind: str = ""
    name: str = ""


class PreemptionGate(KubeStruct, frozen=True):
    name: str = ""


class WorkloadSpec(KubeStruct, frozen=True):
    pod_sets: tuple[PodSetSpec, ...] = ()
    queue_name: str = ""
    priority_class_ref: PriorityClassRef | None = None
    priority_class_name: str = ""
    """v1beta1's form of `priorityClassRef`, with `priorityClassSource`."""
    priority_class_source: str = ""
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    preemption_gates: tuple[PreemptionGate, ...] = ()


class Condition(KubeStruct, frozen=True):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class IndividualValues(KubeStruct, frozen=True):
    prefix: str = ""
    suffix: str = ""
    roots: tuple[str, ...] = ()


class LevelValues(KubeStruct, frozen=True):
    """One level's values of the domains of a slice: the same for all, or one each."""

    universal: str | None = None
    individual: IndividualValues | None = None


class PodCounts(KubeStruct, frozen=True):
    universal: int | None = None
    individual: tuple[int, ...] = ()


class AssignmentSlice(KubeStruct, frozen=True):
    domain_count: int = 0
    values_per_level: tuple[LevelValues, ...] = ()
    pod_counts: PodCounts = PodCounts()


class AssignmentDomain(KubeStruct, frozen=True):
    values: tuple[str, ...] = ()
    count: int = 0


class TopologyAssignmentStatus(KubeStruct, frozen=True):
    levels: tuple[str, ...] = ()
    slices: tuple[AssignmentSlice, ...] = ()
    """v1beta2's compressed form."""
    domains: tuple[AssignmentDomain, ...] = ()
    """v1beta1's plain form."""


class PodSetAssignmentStatus(KubeStruct, frozen=True):
    name: str = "main"
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    count: int | None = None
    topology_assignment: TopologyAssignmentStatus | None = None


class AdmissionStatus(KubeStruct, frozen=True):
    cluster_queue: str = ""
    pod_set_assignments: tuple[PodSetAssignmentStatus, ...] = ()


class ReclaimablePod(KubeStruct, frozen=True):
    name: str = ""
    count: int = 0


class RequeueState(KubeStruct, frozen=True):
    count: int = 0
    requeue_at: str = ""


class PreemptionGateState(KubeStruct, frozen=True):
    name: str = ""
    position: str = ""
    """Open or Closed."""


class UnhealthyNode(KubeStruct, frozen=True):
    name: str = ""


class EvictionCount(KubeStruct, frozen=True):
    reason: str = ""
    underlying_cause: str = ""
    count: int = 0


class SchedulingStats(KubeStruct, frozen=True):
    evictions: tuple[EvictionCount, ...] = ()


class WorkloadStatus(KubeStruct, frozen=True):
    admission: AdmissionStatus | None = None
    conditions: tuple[Condition, ...] = ()
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    requeue_state: RequeueState | None = None
    unhealthy_nodes: tuple[UnhealthyNode, ...] = ()
    preemption_gates: tuple[PreemptionGateState, ...] = ()
    scheduling_stats: SchedulingStats = SchedulingStats()
    accumulated_past_execution_time_seconds: int | None = None
    accumulated_past_exexcution_time_seconds: int | None = None
    """The same in v1beta1, which spells it so."""


class WorkloadObject(KubeStruct, frozen=True):
    """A `kueue.x-k8s.io` Workload."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type if it is True."""
        for condition in self.status.conditions:
            if condition.type == kind and condition.status == "True":
                return condition
        return None
