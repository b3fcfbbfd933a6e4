"""A workload: one or more sets of pods that start together.

Everything that is submitted (a Kueue Workload, a Job, a pod group, a training job, a single pod) becomes one of these
in `cluster.workloads`. `queueing` orders and admits workloads, `placement` places their pods.
"""

from __future__ import annotations

import msgspec

from windlass.model.leaving import AskTerms
from windlass.model.pod import STUCK_AFTER_SECONDS, Pod


class TopologyRequest(msgspec.Struct, frozen=True):
    """How close together the pods of a set have to be."""

    mode: str
    """`required`, `preferred` or `unconstrained`."""
    level: str = ""
    """Node label of the domain; empty for unconstrained."""
    slice_level: str = ""
    """Each slice of `slice_size` pods stays within one domain of this label."""
    slice_size: int = 0
    inner_slices: tuple[tuple[str, int], ...] = ()
    """Further layers (label, size) inside a slice, widest first."""
    group: str = ""
    """Pod sets of one group (a leader and its workers) share a domain."""
    spans_pod_sets: bool = False
    """The level applies to all such sets of the workload together: pods of a group have one request, whatever their
    shapes."""


class PodSetSize(msgspec.Struct, frozen=True):
    """What a pod set of a Kueue Workload asks for and holds, in pods."""

    declared: int
    """`spec.podSets[].count`."""
    reclaimable: int
    """`status.reclaimablePods`: pods that have ended for good, whose quota is given back."""
    admitted: int

    @property
    def held(self) -> int:
        return max(0, min(self.admitted, self.declared - self.reclaimable))


class OwnerSize(msgspec.Struct, frozen=True):
    """How many pods the owner of an admitted Kueue Workload runs in one pod set, beside what that set holds."""

    pod_set: str
    count: int
    """Pods that the owner asks for, without those that have ended for good."""
    ended: int
    """Those that have ended for good."""
    on_nodes: int
    """Pods on nodes, also those that are being deleted: their quota is free when they have terminated."""
    is_partial: bool
    """It may be admitted with fewer pods: the spec keeps the size that is restored when the owner is stopped."""
    now: PodSetSize

    @property
    def wanted(self) -> int:
        """Pods that need quota now."""
        return max(self.count, min(self.on_nodes, self.now.held))


class PodSet(msgspec.Struct, frozen=True):
    name: str
    count: int
    template: Pod
    """Template: what each pod of the set asks for and where it may go."""
    min_count: int | None = None
    """Partial admission: the least number of pods with which it can start; None: all of `count`."""
    pod_keys: tuple[str, ...] = ()
    """Keys of the existing pods of the set, placed ones first."""
    topology: TopologyRequest | None = None
    flavors: frozenset[str] = frozenset()
    """The flavors of its pods that run: more pods of an elastic workload get the same. Empty: any."""


class PodSetAssignment(msgspec.Struct, frozen=True):
    """What a pod set holds of its queue's quota, and where it is."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource → flavor."""
    usage: dict[str, int]
    """Resource → amount, in base units (`nvidia.com/gpu` in milli)."""
    nodes: dict[str, int] = msgspec.field(default_factory=dict)
    """Node name → pods, from the topology assignment or the bound pods."""
    domains: tuple[tuple[tuple[str, ...], int], ...] = ()
    """(level values, pods) of a topology assignment whose lowest level is not the node."""
    levels: tuple[str, ...] = ()


class Admission(msgspec.Struct, frozen=True):
    """It holds quota."""

    cluster_queue: str
    """ClusterQueue."""
    assignments: tuple[PodSetAssignment, ...] = ()
    reserved_at: int = 0
    """When quota was reserved, in seconds."""


class Workload(msgspec.Struct, frozen=True):
    key: str
    """`namespace/name`."""
    kind: str
    """Workload, Job, JobSet, PodGroup, Pod, PyTorchJob, …"""
    pod_sets: tuple[PodSet, ...]
    uid: str = ""
    queue_name: str = ""
    """LocalQueue name in the workload's namespace; empty where it is in no queue."""
    priority: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    created: int = 0
    queued_at: int = 0
    """Start of its waiting time: its creation, or its last eviction."""
    admission: Admission | None = None
    evicting: bool = False
    """It is being evicted."""
    ends_by: int = 0
    """Where it is being evicted: when the grace period of its pods ends, in seconds; 0 where unknown."""
    active: bool = True
    hold: str = ""
    """Why it is not considered: a missing queue, an ungrouped owner, a field that can't be read."""
    hold_code: str = ""
    unreadable: str = ""
    """Why none of its pods can be placed: their requests can't be read. Also set if it holds quota."""
    min_pods: int | None = None
    """Pods (over all sets) with which a gang may start; None: all of them. Members above it are elastic."""
    all_or_nothing: bool = True
    """Losing one running member stops the rest."""
    max_run_seconds: int | None = None
    """Declared limit of its run time."""
    run_limit_enforced: bool = True
    """It is stopped at its limit (a deadline); False for a declared `windlass.dev/duration`."""
    execution_seconds: int | None = None
    """What is left of Kueue's maximum execution time when it is admitted; then it is deactivated. None: no limit."""
    unready_since: int = 0
    """Since when an admitted Kueue Workload waits for its pods to be ready; 0: they are, or it is not admitted."""
    is_recovering: bool = False
    """Its pods were ready before."""
    requeues: int = 0
    """How often it was requeued because its pods were not ready in time."""
    started_at: int = 0
    checkpoint_at: int = 0
    """Last checkpoint, in seconds; 0 where unknown."""
    restart_seconds: int | None = None
    """Declared time lost by a restart; None if not declared."""
    checkpoint_seconds: int | None = None
    """Declared time between two checkpoints that it writes by itself; None: not declared."""
    ask_terms: AskTerms | None = None
    """It is asked for a checkpoint before it is preempted, on these terms; None: it is not asked."""
    is_asked: bool = False
    """An ask is written on it or on one of its pods."""
    evictable: bool = True
    may_borrow: bool = True
    """False: only its queue's own quota is for it (KAI's work that is not preemptible)."""
    evictions: int = 0
    """How often it was preempted so far; see `queueing.preemption_common` for why that counts."""
    nominated: bool = False
    """Victims were evicted for it and have not terminated yet: it is placed first, so that nothing else takes the freed
    capacity. Kubernetes stores this as `status.nominatedNodeName` of the pending pod; of a workload whose pods don't
    exist yet, the sink that executes the plan tells the store."""
    gang_running: bool = False
    """The rest of its gang runs and idles without it: it comes before others of the same priority."""
    owner_sizes: tuple[OwnerSize, ...] = ()
    """The pod sets of which its owner runs another number of pods than it holds quota for."""
    is_elastic: bool = False
    """It may grow while it runs."""
    user: str = ""
    """Who has submitted it, as `windlass.dev/user` says; empty where nothing does."""
    owner: str = ""
    """`Kind namespace/name` of the object behind it, if that is another one (the Job of a Kueue Workload)."""

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    def is_stuck(self, now: int) -> bool:
        """Whether it should have ended some time ago: nothing can count on its end."""
        return self.evicting and bool(self.ends_by) and now - self.ends_by > STUCK_AFTER_SECONDS

    @property
    def is_running(self) -> bool:
        """Holds quota or has pods on nodes."""
        return self.admission is not None
