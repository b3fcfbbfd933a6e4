"""Kueue's queue kinds as they stand in the API, v1beta1 and v1beta2 (and the v1alpha1 of Cohort and Topology) in one.

Decoded by `model.codec`; `model.kueue.queues` turns them into the nouns of `model.queue`. Where a field was renamed,
both names are declared, and it is an error to set both. Field names and values are Kueue's interface (Apache-2.0).
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct, LabelSelector, ObjectMeta
from windlass.model.node import Taint
from windlass.model.pod import RawQuantity, Toleration


class QueueObject(KubeStruct, frozen=True):
    """Base of the kinds in which a field that is not understood must not pass unseen."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    unread_fields: tuple[str, ...] = ()
    """Paths of the fields of `spec` that are not declared here; filled in while decoding."""

    @property
    def name(self) -> str:
        return self.metadata.name


class ResourceQuotaSpec(KubeStruct, frozen=True):
    name: str
    nominal_quota: RawQuantity = 0
    borrowing_limit: RawQuantity | None = None
    lending_limit: RawQuantity | None = None


class FlavorQuotasSpec(KubeStruct, frozen=True):
    name: str
    resources: tuple[ResourceQuotaSpec, ...] = ()


class ResourceGroupSpec(KubeStruct, frozen=True):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotasSpec, ...] = ()


class FairSharingSpec(KubeStruct, frozen=True):
    weight: RawQuantity = 1


class FungibilitySpec(KubeStruct, frozen=True):
    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = ""


class BorrowWithinCohortSpec(KubeStruct, frozen=True):
    policy: str = "Never"
    max_priority_threshold: int | None = None


class PreemptionSpec(KubeStruct, frozen=True):
    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"
    borrow_within_cohort: BorrowWithinCohortSpec | None = None


class AdmissionCheckRule(KubeStruct, frozen=True):
    name: str = ""
    on_flavors: tuple[str, ...] = ()


class AdmissionChecksStrategy(KubeStruct, frozen=True):
    admission_checks: tuple[AdmissionCheckRule, ...] = ()


class AdmissionScope(KubeStruct, frozen=True):
    admission_mode: str = "NoAdmissionFairSharing"


class ClusterQueueSpec(KubeStruct, frozen=True):
    resource_groups: tuple[ResourceGroupSpec, ...] = ()
    cohort: str = ""
    """v1beta1's name of `cohortName`."""
    cohort_name: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FungibilitySpec = FungibilitySpec()
    preemption: PreemptionSpec = PreemptionSpec()
    admission_checks: tuple[str, ...] = ()
    """v1beta1; v1beta2 has `admissionChecksStrategy` only."""
    admission_checks_strategy: AdmissionChecksStrategy = AdmissionChecksStrategy()
    stop_policy: str = "None"
    fair_sharing: FairSharingSpec = FairSharingSpec()
    admission_scope: AdmissionScope = AdmissionScope()


class ClusterQueueObject(QueueObject, frozen=True):
    spec: ClusterQueueSpec = ClusterQueueSpec()


class CohortSpec(KubeStruct, frozen=True):
    parent: str = ""
    """v1alpha1's name of `parentName`."""
    parent_name: str = ""
    resource_groups: tuple[ResourceGroupSpec, ...] = ()
    fair_sharing: FairSharingSpec = FairSharingSpec()


class CohortObject(QueueObject, frozen=True):
    spec: CohortSpec = CohortSpec()


class LocalQueueSpec(KubeStruct, frozen=True):
    cluster_queue: str = ""
    stop_policy: str = "None"
    fair_sharing: FairSharingSpec = FairSharingSpec()


class AdmissionFairSharingStatus(KubeStruct, frozen=True):
    consumed_resources: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    last_update: str = ""


class LocalQueueFairSharingStatus(KubeStruct, frozen=True):
    admission_fair_sharing_status: AdmissionFairSharingStatus = AdmissionFairSharingStatus()


class LocalQueueStatus(KubeStruct, frozen=True):
    fair_sharing: LocalQueueFairSharingStatus = LocalQueueFairSharingStatus()


class LocalQueueObject(QueueObject, frozen=True):
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class ResourceFlavorSpec(KubeStruct, frozen=True):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str = ""


class ResourceFlavorObject(QueueObject, frozen=True):
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(KubeStruct, frozen=True):
    node_label: str = ""


class TopologySpec(KubeStruct, frozen=True):
    levels: tuple[TopologyLevel, ...] = ()


class TopologyObject(QueueObject, frozen=True):
    spec: TopologySpec = TopologySpec()


class WorkloadPriorityClassObject(KubeStruct, frozen=True):
    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0

    @property
    def name(self) -> str:
        return self.metadata.name
