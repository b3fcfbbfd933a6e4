"""A workload: one or more sets of pods that start together.

Whatever people submit (a Kueue Workload, a Job, a pod group, a training job, a single pod) becomes one of these; see
`cluster.workloads`. `queueing` orders and admits workloads, `placement` places their pods.
"""

from __future__ import annotations

import msgspec

from windlass.model.pod import Pod


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
    """The level holds for all sets of the workload that ask so, not for each: pods that form a group have one request,
    however many shapes they come in."""


class PodSet(msgspec.Struct, frozen=True):
    name: str
    count: int
    template: Pod
    """Template: what each pod of the set asks for and where it may go."""
    min_count: int | None = None
    """Partial admission: with as few as these it can start (all of `count` where None)."""
    pod_keys: tuple[str, ...] = ()
    """Pods of the set that exist, by key, those that are placed first."""
    topology: TopologyRequest | None = None


class PodSetAssignment(msgspec.Struct, frozen=True):
    """What a pod set holds of its queue's quota, and where it is."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource → flavor."""
    usage: dict[str, int]
    """Resource → amount, in base units (`nvidia.com/gpu` in milli)."""
    nodes: dict[str, int] = msgspec.field(default_factory=dict)
    """Node name → pods, where the topology assignment or bound pods say so."""
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
    """Since when it counts as waiting: its creation, or its last eviction."""
    admission: Admission | None = None
    evicting: bool = False
    """Its eviction is already under way."""
    active: bool = True
    hold: str = ""
    """Why it can't be looked at: a missing queue, an ungrouped owner, a field that can't be read."""
    hold_code: str = ""
    unreadable: str = ""
    """Why nothing of it can be placed: what its pods ask for can't be understood. Set also where it holds quota."""
    min_pods: int | None = None
    """Pods (over all sets) with which a gang may start; None: all of them. Members above it are elastic."""
    all_or_nothing: bool = True
    """Losing one running member stops the rest."""
    max_run_seconds: int | None = None
    """Declared limit of its run time."""
    run_limit_enforced: bool = True
    """Something stops it at its limit (a deadline); False for a declared `windlass.dev/duration`."""
    started_at: int = 0
    checkpoint_at: int = 0
    """Last checkpoint, in seconds; 0 where unknown."""
    restart_seconds: int | None = None
    """What starting again costs it, as it declares; None where it declares nothing."""
    evictable: bool = True
    evictions: int = 0
    """How often it was preempted so far; see `queueing.preemption_common` for why that counts."""
    nominated: bool = False
    """Others were evicted for it, and it waits until they are gone: it goes first, so that nobody takes their room.
    Kubernetes remembers it as `status.nominatedNodeName` of a pod that waits."""
    gang_running: bool = False
    """The rest of its gang runs, and idles without it: it goes before its equals in priority."""
    owner: str = ""
    """`Kind namespace/name` of what it was made of, where that is another object (the Job of a Kueue Workload)."""

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def is_running(self) -> bool:
        """Holds quota or has pods on nodes."""
        return self.admission is not None
