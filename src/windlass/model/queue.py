"""Queues, cohorts, flavors and topologies, as the engine reads them.

Kueue's objects in either API version become these (`model.kueue` decodes and normalises them); `queueing` decides with
them. Quantities are in base units (milli-CPU, bytes, counts), so that quota is whole numbers everywhere; a GPU share
counts in thousandths, so `nvidia.com/gpu` quota is kept in milli-GPU throughout.
"""

from __future__ import annotations

import msgspec

from windlass.model.flavor_offer import FlavorOffer
from windlass.model.meta import LabelSelector
from windlass.model.node import Taint
from windlass.model.pod import Toleration
from windlass.model.queue_policy import QueuePolicy


class FlavorResourceQuota(msgspec.Struct, frozen=True):
    """The quota of one resource in one flavor."""

    nominal: int
    borrowing_limit: int | None = None
    """None: as much as the cohort has."""
    lending_limit: int | None = None
    """None: all of it."""


class FlavorQuotas(msgspec.Struct, frozen=True):
    flavor: str
    quotas: dict[str, FlavorResourceQuota]
    """By resource."""
    inactive_reason: str = ""
    """Why nothing is admitted on this flavor in this queue, though its quota counts; empty where it is used."""


class ResourceGroup(msgspec.Struct, frozen=True):
    """Resources that are taken from the same flavor, and the flavors in the order in which they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class Fungibility(msgspec.Struct, frozen=True):
    """When to try the next flavor. Values are v1beta2's."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = "BorrowingOverPreemption"


class PreemptionPolicy(msgspec.Struct, frozen=True):
    within_cluster_queue: str = "Never"
    """Never, LowerPriority or LowerOrNewerEqualPriority."""
    reclaim_within_cohort: str = "Never"
    """Never, LowerPriority or Any."""
    borrow_within_cohort: str = "Never"
    """Never or LowerPriority."""
    max_priority_threshold: int | None = None


class ClusterQueue(msgspec.Struct, frozen=True):
    name: str
    cohort: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    queueing_strategy: str = "BestEffortFIFO"
    fungibility: Fungibility = Fungibility()
    preemption: PreemptionPolicy = PreemptionPolicy()
    fair_weight_milli: int = 1000
    """Weight of its share, in thousandths."""
    namespace_selector: LabelSelector | None = None
    """None selects nothing, an empty one everything."""
    stop_policy: str = "None"
    usage_based: bool = False
    """Order by usage history inside the queue (admissionScope UsageBasedAdmissionFairSharing)."""
    inactive_reason: str = ""
    """Why it admits nothing: a field that is not implemented, by its path, or a missing flavor."""
    ignores_undeclared: bool = False
    """It limits only the resources that it has quota of; others are not its business. Kueue's queues are not so."""
    priority: int = 0
    """Of two queues whose work borrows, that of the higher one comes first."""
    preempt_min_run_seconds: int | None = None
    """Work of it that has run for less is not preempted inside the queue; None: as configured for all."""
    reclaimable: bool = True
    """False: other queues don't reclaim from it, though it borrows (Volcano)."""
    reclaim_min_run_seconds: tuple[tuple[str, int], ...] = ()
    """(queue or cohort above it, seconds), widest first: the same for work that other queues reclaim from."""
    policy: QueuePolicy = QueuePolicy()


class Cohort(msgspec.Struct, frozen=True):
    """A node of the tree above the queues; its own quota is shared by all below it."""

    name: str
    parent: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_weight_milli: int = 1000


class LocalQueue(msgspec.Struct, frozen=True):
    key: str
    """`namespace/name`."""
    cluster_queue: str
    stop_policy: str = "None"
    fair_weight_milli: int = 1000
    consumed: dict[str, int] = msgspec.field(default_factory=dict)
    """Decayed usage so far, by resource, as its status has it."""
    consumed_at: int = 0
    inactive_reason: str = ""
    """Why nothing of it is admitted: a field that is not implemented, by its path."""


class ResourceFlavor(msgspec.Struct, frozen=True):
    name: str
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""
    any_topology: bool = False
    """Its topology is the labels of its nodes, whichever a request names: queues of other schedulers have no other."""
    offer: FlavorOffer | None = None
    """What it costs, and how often its nodes are taken away; None: nobody has said."""


class Topology(msgspec.Struct, frozen=True):
    """Node labels from the widest domain to the narrowest."""

    name: str
    levels: tuple[str, ...]


class QueueSystem(msgspec.Struct, frozen=True):
    """Everything that the queue kinds of a cluster say, by name."""

    queues: dict[str, ClusterQueue] = msgspec.field(default_factory=dict)
    cohorts: dict[str, Cohort] = msgspec.field(default_factory=dict)
    local_queues: dict[str, LocalQueue] = msgspec.field(default_factory=dict)
    shared_queues: dict[str, LocalQueue] = msgspec.field(default_factory=dict)
    """Queues that work of every namespace can name: KAI's and Volcano's, as `model.queue_names` writes them."""
    flavors: dict[str, ResourceFlavor] = msgspec.field(default_factory=dict)
    topologies: dict[str, Topology] = msgspec.field(default_factory=dict)
    priority_classes: dict[str, int] = msgspec.field(default_factory=dict)
    """PriorityClass name → value."""
    workload_priority_classes: dict[str, int] = msgspec.field(default_factory=dict)
    default_priority_class: str = ""
    """The PriorityClass of pods that name none (globalDefault)."""
    non_preempting_classes: frozenset[str] = frozenset()
    """PriorityClasses whose preemptionPolicy is Never."""
    namespaces: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Labels of the namespaces, which a queue's `namespace_selector` selects by."""

    def local_queue(self, namespace: str, name: str) -> LocalQueue | None:
        """The queue that work of the namespace means by this name."""
        return self.local_queues.get(f"{namespace}/{name}") or self.shared_queues.get(name)
