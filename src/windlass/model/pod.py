"""A pod, as far as placement reads it.

Decoded from watch events, dumps and manifests; built by the trace readers. `cluster` reduces it to a shape.
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct, LabelSelector, ObjectMeta
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.times import parse_timestamp

RawQuantity = str | int | float
STUCK_AFTER_SECONDS = 60
"""A pod that is still there so long after its grace period is not expected to end by itself."""


class ResourceClaimName(KubeStruct, frozen=True):
    name: str = ""


class ResourceRequirements(KubeStruct, frozen=True):
    limits: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    requests: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaimName, ...] = ()


class ContainerPort(KubeStruct, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(KubeStruct, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class Toleration(KubeStruct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(KubeStruct, frozen=True):
    """`operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(KubeStruct, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(KubeStruct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(KubeStruct, frozen=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(KubeStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(KubeStruct, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(KubeStruct, frozen=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(KubeStruct, frozen=True):
    """Also the shape of pod anti-affinity."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(KubeStruct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(KubeStruct, frozen=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(KubeStruct, frozen=True):
    name: str


class PersistentVolumeClaimVolume(KubeStruct, frozen=True):
    claim_name: str


class EphemeralVolume(KubeStruct, frozen=True):
    """A generic ephemeral volume: its claim is named `<pod>-<volume>`."""


class Volume(KubeStruct, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None


class PodResourceClaim(KubeStruct, frozen=True):
    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodLevelResources(KubeStruct, frozen=True):
    limits: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    requests: dict[str, RawQuantity] = msgspec.field(default_factory=dict)


class SchedulingGroup(KubeStruct, frozen=True):
    """The native PodGroup that a pod is a member of."""

    pod_group_name: str = ""


class WorkloadReference(KubeStruct, frozen=True):
    """Kubernetes 1.35's way to name a group, gone since."""

    name: str = ""


class PodSpec(KubeStruct, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    resources: PodLevelResources | None = None
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    host_network: bool = False
    runtime_class_name: str = ""
    active_deadline_seconds: int | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class PodCondition(KubeStruct, frozen=True):
    type: str = ""
    status: str = ""


READY = "Ready"
_READINESS = {status: (PodCondition(type=READY, status=status),) for status in ("True", "False", "Unknown")}


class PodStatus(KubeStruct, frozen=True):
    phase: str = ""
    start_time: str = ""
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    """`Ready` alone: no other is read, and pods are many."""

    def __post_init__(self) -> None:
        if self.conditions:
            ready = next((condition.status for condition in self.conditions if condition.type == READY), "")
            msgspec.structs.force_setattr(self, "conditions", _READINESS.get(ready, ()))


class Pod(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """`namespace/name`, as plans and messages name a pod."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def is_bound(self) -> bool:
        return bool(self.spec.node_name)

    @property
    def is_ready(self) -> bool:
        """Not said to be otherwise: what has no kubelet (a trace, a manifest) says nothing."""
        return all(condition.status == "True" for condition in self.status.conditions)

    def is_stuck(self, now: int) -> bool:
        """Whether it is being deleted and should have ended some time ago: deletionTimestamp is the end of its grace
        period. Its node may be unreachable, or a finalizer keeps it."""
        ends_at = parse_timestamp(self.metadata.deletion_timestamp)
        return bool(ends_at) and now - ends_at > STUCK_AFTER_SECONDS

    @property
    def is_terminal(self) -> bool:
        """Ended: it holds nothing on its node any more."""
        return self.status.phase in ("Succeeded", "Failed")
