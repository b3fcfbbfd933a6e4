"""The fields of a scenario file (`kind: Scenario`).

`scenario.load` decodes them strictly; `cluster_shorthand` and `workload_shorthand` turn the short forms into Kubernetes
objects, `player` plays the timeline, `expectations` checks `expect`. What has no short form is written as a Kubernetes
object.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.configuration import Settings, StrictStruct
from windlass.model.meta import ObjectMeta
from windlass.model.pod import RawQuantity, Toleration
from windlass.model.unstructured import Unstructured

MAX_REST = 1000
"""Rounds that an expectation may ask for."""
NodePlacement = tuple[str, ...] | dict[str, int]
"""Nodes, one pod each, or node → pods."""


class ShortFlavor(StrictStruct, frozen=True):
    """A ResourceFlavor."""

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Unstructured, ...] = ()
    tolerations: tuple[Unstructured, ...] = ()
    topology: str = ""
    annotations: dict[str, str] = {}


class ShortQuota(StrictStruct, frozen=True):
    """Quota of a queue or cohort in one flavor; `gpu` is short for `nvidia.com/gpu`."""

    flavor: str = "default"
    quota: dict[str, RawQuantity] = {}
    borrow: dict[str, RawQuantity] = {}
    """borrowingLimit by resource."""
    lend: dict[str, RawQuantity] = {}
    """lendingLimit by resource."""


class ShortQueue(StrictStruct, frozen=True):
    """A ClusterQueue, and a LocalQueue of the same name for it."""

    name: str
    cohort: str = ""
    quota: dict[str, RawQuantity] = {}
    borrow: dict[str, RawQuantity] = {}
    lend: dict[str, RawQuantity] = {}
    flavors: tuple[ShortQuota, ...] = ()
    """Several flavors in their order, instead of `quota`, `borrow` and `lend`."""
    preemption: Unstructured = {}
    fungibility: Unstructured = {}
    strategy: str = "BestEffortFIFO"
    weight: RawQuantity | None = None
    stop: str = "None"
    namespace: str = "default"
    """Of the LocalQueue."""
    annotations: dict[str, str] = {}
    """Of the ClusterQueue."""
    spec: Unstructured = {}
    """Further fields of the ClusterQueue's spec."""


class ShortCohort(StrictStruct, frozen=True):
    name: str
    parent: str = ""
    quota: dict[str, RawQuantity] = {}
    borrow: dict[str, RawQuantity] = {}
    lend: dict[str, RawQuantity] = {}
    weight: RawQuantity | None = None


class ShortSlice(StrictStruct, frozen=True):
    size: int
    within: str


class ShortTopology(StrictStruct, frozen=True):
    """Topology request of the pods; `rack`, `block`, `zone`, `host` and `clique` are short for their labels."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slices: ShortSlice | None = None
    group: str = ""
    """Pod sets of the same group share a domain."""


class ShortPodSet(StrictStruct, frozen=True):
    """A pod set of a workload with several."""

    name: str
    pods: int = 1
    gpus: RawQuantity = 0
    cpu: RawQuantity | None = None
    memory: RawQuantity | None = None
    topology: ShortTopology | None = None
    minimum: int | None = None


class ShortWorkload(StrictStruct, frozen=True):
    """A workload. Exactly one of the first seven fields is given: it says the kind, its value is the name."""

    job: str = ""
    """batch/v1 Job."""
    pod: str = ""
    group: str = ""
    """Pods with Kueue's pod-group label."""
    native: str = ""
    """PodGroup of scheduling.k8s.io, and its pods."""
    volcano: str = ""
    """PodGroup of Volcano, and its pods."""
    coscheduling: str = ""
    """PodGroup of the coscheduling plugin, and its pods."""
    workload: str = ""
    """Kueue Workload; its pods are created once it is admitted."""
    namespace: str = "default"
    queue: str = ""
    pods: int = 1
    gpus: RawQuantity = 0
    """Per pod; a fraction is a share of one GPU."""
    cpu: RawQuantity | None = None
    memory: RawQuantity | None = None
    sets: tuple[ShortPodSet, ...] = ()
    priority: int | str = 0
    """A number, or the name of a priority class."""
    minimum: int | None = None
    """Smallest number of pods to start with: partial admission of a job or workload, minMember of a group."""
    topology: ShortTopology | None = None
    selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: Unstructured = {}
    """Further fields of the pods' spec."""
    duration: str = ""
    """How long it runs in the simulation; without it, it never ends."""
    limit: str = ""
    """The run time that it declares (`windlass.dev/duration`)."""
    checkpoint: str = ""
    """Time of its last checkpoint on the scenario's clock; `-5m` is before the start."""
    owner: str = ""
    """`Kind/name` of the controller that recreates the pods; groups have one unless it is `none`."""
    count: int = 1
    """Number of such workloads, named `<name>-1`, `<name>-2`, …"""
    nodes: NodePlacement = ()
    """Nodes on which its pods run at the start."""
    since: str = ""
    """How long it has been running or waiting at the start."""


class RunningCheck(StrictStruct, frozen=True):
    """The workload runs, with at least its minimum of pods."""

    workload: str
    pods: int | None = None
    nodes: NodePlacement = ()
    within: str = ""
    """Level of which one domain has all of its pods."""
    across: dict[str, int] = {}
    """Level → number of domains with pods of it."""
    slices: ShortSlice | None = None
    """In every domain of the level, the number of pods is a multiple of the size."""
    flavor: str = ""
    devices: tuple[int, ...] = ()
    """Indices of its GPUs; only known for pods that existed when they were bound."""


class HeldCheck(StrictStruct, frozen=True):
    workload: str
    code: str = ""
    message: str | tuple[str, ...] = ()
    """Fragments of the hold's message."""
    public: tuple[str, ...] = ()
    """Fragments of the message that the workload's owner sees."""
    hidden: tuple[str, ...] = ()
    """Fragments that the message for the owner must not have."""


class EvictedCheck(StrictStruct, frozen=True):
    workload: str
    for_: str = msgspec.field(default="", name="for")
    reason: str = ""
    pods: int | None = None


class Expect(StrictStruct, frozen=True):
    """Expectations once everything that is due at this moment has been decided and executed."""

    running: tuple[str | RunningCheck, ...] = ()
    held: tuple[str | HeldCheck, ...] = ()
    evicted: tuple[str | EvictedCheck, ...] = ()
    """Exactly these workloads were evicted since the last `expect`; by default none."""
    asked: tuple[str, ...] | None = None
    """Exactly these workloads are asked for a checkpoint at the moment; not checked where nothing is given."""
    finished: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """Workloads that don't exist and won't come back."""
    free: dict[str, int] = {}
    """Node → whole GPUs that no pod holds."""
    notes: tuple[str, ...] = ()
    """Fragments of notes about the cluster as a whole."""
    rest: int = 0
    """Number of further rounds, a second apart, that change nothing."""


class Change(StrictStruct, frozen=True):
    object: str
    """`Kind/name` or `Kind/namespace/name`."""
    merge: Unstructured
    """JSON merge patch."""


class Moment(StrictStruct, frozen=True):
    """Events at one time, and what is expected afterwards."""

    at: str
    say: str = ""
    submit: tuple[Unstructured, ...] = ()
    finish: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    fail: tuple[str, ...] = ()
    """Nodes that fail, with the pods on them."""
    repair: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    checkpoint: tuple[str, ...] = ()
    """Workloads that write a checkpoint now."""
    answer: tuple[str, ...] = ()
    """Workloads that have been asked, and answer with a checkpoint of now."""
    quota: dict[str, dict[str, RawQuantity]] = {}
    """ClusterQueue with one flavor → its new nominal quota."""
    change: tuple[Change, ...] = ()
    expect: Expect | None = None


class ScenarioFile(StrictStruct, frozen=True):
    """The document as written in the file."""

    title: str
    story: str
    rule: str
    timeline: tuple[Moment, ...]
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    source: tuple[str, ...] = ()
    """Origin of the case: issues of other projects."""
    config: Unstructured = {}
    termination: str = "0s"
    """How long an evicted pod takes to terminate."""
    fleet: tuple[Unstructured, ...] = ()
    """Pools of a Fleet; `gpus: 8xH100` is short for the list."""
    topologies: dict[str, tuple[str, ...]] = {}
    """Topology → its levels, the widest first."""
    flavors: tuple[ShortFlavor, ...] = ()
    cohorts: tuple[ShortCohort, ...] = ()
    queues: tuple[ShortQueue, ...] = ()
    priorities: dict[str, int] = {}
    """Each is a PriorityClass and a WorkloadPriorityClass."""
    objects: tuple[Unstructured, ...] = ()
    running: tuple[ShortWorkload, ...] = ()


class ResolvedMoment(msgspec.Struct, frozen=True):
    """A moment with its short forms expanded."""

    at: int
    """Seconds since the start."""
    moment: Moment
    submit: tuple[Unstructured, ...]
    """As Kubernetes objects, in order."""
    expect: Expect | None


class Scenario(msgspec.Struct, frozen=True):
    """A scenario that was read and checked."""

    name: str
    document: ScenarioFile
    settings: Settings
    termination: int
    objects: tuple[Unstructured, ...]
    """Objects at the start."""
    steps: tuple[ResolvedMoment, ...]
    file: str = ""
    position_of: Callable[[str], tuple[int, int]] = lambda path: (0, 0)
    """Line and column of a field in the file."""
