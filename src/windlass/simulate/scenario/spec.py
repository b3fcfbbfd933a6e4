"""`kind: Scenario`: what may stand in a scenario file.

Decoded strictly by `load`; `short_park` and `short_work` turn the short forms into Kubernetes objects, `player` walks
the time line, `expectations` checks what stands under `expect`. Whatever has no short form is written as the
Kubernetes object that it is.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.configuration import Settings
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import RawQuantity, Toleration
from windlass.model.unstructured import Unstructured

NodePlacement = tuple[str, ...] | dict[str, int]
"""Nodes, one pod each, or node → pods."""


class StrictStruct(KubeStruct, frozen=True, forbid_unknown_fields=True):
    """A field that is not known is an error: a slip of the pen would change the story without a word."""


class ShortFlavor(StrictStruct, frozen=True):
    """A ResourceFlavor."""

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Unstructured, ...] = ()
    tolerations: tuple[Unstructured, ...] = ()
    topology: str = ""


class ShortQuota(StrictStruct, frozen=True):
    """What a queue or a cohort has of one flavor; `gpu` stands for `nvidia.com/gpu`."""

    flavor: str = "default"
    quota: dict[str, RawQuantity] = {}
    borrow: dict[str, RawQuantity] = {}
    """borrowingLimit by resource."""
    lend: dict[str, RawQuantity] = {}
    """lendingLimit by resource."""


class ShortQueue(StrictStruct, frozen=True):
    """A ClusterQueue, and the LocalQueue of the same name that leads to it."""

    name: str
    cohort: str = ""
    quota: dict[str, RawQuantity] = {}
    borrow: dict[str, RawQuantity] = {}
    lend: dict[str, RawQuantity] = {}
    flavors: tuple[ShortQuota, ...] = ()
    """Several flavors in their order, in place of `quota`, `borrow` and `lend`."""
    preemption: Unstructured = {}
    fungibility: Unstructured = {}
    strategy: str = "BestEffortFIFO"
    weight: RawQuantity | None = None
    stop: str = "None"
    namespace: str = "default"
    """Of the LocalQueue."""
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
    """How close together the pods have to be; `rack`, `block`, `zone`, `host` and `clique` stand for their labels."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slices: ShortSlice | None = None
    group: str = ""
    """Sets of the same group share a domain."""


class ShortPodSet(StrictStruct, frozen=True):
    """Equal pods of a workload that has several kinds of them."""

    name: str
    pods: int = 1
    gpus: RawQuantity = 0
    cpu: RawQuantity | None = None
    memory: RawQuantity | None = None
    topology: ShortTopology | None = None
    minimum: int | None = None


class ShortWorkload(StrictStruct, frozen=True):
    """Something to run, by its kind and name; exactly one of the first fields is given."""

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
    """Kueue Workload, whose pods are made once it is admitted."""
    namespace: str = "default"
    queue: str = ""
    pods: int = 1
    gpus: RawQuantity = 0
    """Of one pod; a fraction is a share of one GPU."""
    cpu: RawQuantity | None = None
    memory: RawQuantity | None = None
    sets: tuple[ShortPodSet, ...] = ()
    priority: int | str = 0
    """A number, or the name of a class."""
    minimum: int | None = None
    """With so many pods it may start: partial admission of a job or workload, minMember of a group."""
    topology: ShortTopology | None = None
    selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: Unstructured = {}
    """Further fields of the pods' spec."""
    duration: str = ""
    """So long it runs in the simulation; for ever where nothing is said."""
    limit: str = ""
    """The run time that it declares (`windlass.dev/duration`)."""
    checkpoint: str = ""
    """Its last checkpoint: a moment of the scenario's clock; `-5m` is before the start."""
    owner: str = ""
    """`Kind/name` of the controller that makes the pods again; groups have one unless it is `none`."""
    count: int = 1
    """So many of them, named `<name>-1`, `<name>-2`, …"""
    nodes: NodePlacement = ()
    """Where its pods run already."""
    since: str = ""
    """For so long it runs already, or waits."""


class RunningCheck(StrictStruct, frozen=True):
    """It holds its place, with at least as many pods as it may start with."""

    workload: str
    pods: int | None = None
    nodes: NodePlacement = ()
    within: str = ""
    """All its pods are in one domain of this level."""
    across: dict[str, int] = {}
    """Level → the number of domains that its pods are in."""
    slices: ShortSlice | None = None
    """The pods in every domain of the level are a multiple of the size."""
    flavor: str = ""
    devices: tuple[int, ...] = ()
    """Indices of the GPUs that its pods were given, where its pods existed when they were bound."""


class HeldCheck(StrictStruct, frozen=True):
    workload: str
    code: str = ""
    message: str | tuple[str, ...] = ()
    """Fragments of what is said."""
    public: tuple[str, ...] = ()
    """Fragments of what its owner is told."""
    hidden: tuple[str, ...] = ()
    """What its owner is not told."""


class EvictedCheck(StrictStruct, frozen=True):
    workload: str
    for_: str = msgspec.field(default="", name="for")
    reason: str = ""
    pods: int | None = None


class Expect(StrictStruct, frozen=True):
    """What holds once everything that is due at this moment has been decided and carried out."""

    running: tuple[str | RunningCheck, ...] = ()
    held: tuple[str | HeldCheck, ...] = ()
    evicted: tuple[str | EvictedCheck, ...] = ()
    """Exactly these were evicted since the last look; where it isn't given, nobody may have been."""
    finished: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """Neither there nor to come back."""
    free: dict[str, int] = {}
    """Node → whole GPUs that no pod holds."""
    notes: tuple[str, ...] = ()
    """Fragments of what is said about the cluster as a whole."""
    rest: int = 0
    """So many further rounds, a second apart, change nothing."""


class Change(StrictStruct, frozen=True):
    object: str
    """`Kind/name` or `Kind/namespace/name`."""
    merge: Unstructured
    """JSON merge patch."""


class Moment(StrictStruct, frozen=True):
    """What happens at one time, and what is expected afterwards."""

    at: str
    say: str = ""
    submit: tuple[Unstructured, ...] = ()
    finish: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    fail: tuple[str, ...] = ()
    """Nodes that are lost, with the pods on them."""
    repair: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    checkpoint: tuple[str, ...] = ()
    """Workloads that write one now."""
    quota: dict[str, dict[str, RawQuantity]] = {}
    """ClusterQueue of one flavor → its new nominal quota."""
    change: tuple[Change, ...] = ()
    expect: Expect | None = None


class ScenarioFile(StrictStruct, frozen=True):
    """The document as it is written."""

    title: str
    story: str
    rule: str
    timeline: tuple[Moment, ...]
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    source: tuple[str, ...] = ()
    """Where the case comes from: issues of other projects."""
    config: Unstructured = {}
    termination: str = "0s"
    """How long an evicted pod takes to go."""
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
    """A moment with everything in it read."""

    at: int
    """Seconds since the start."""
    moment: Moment
    submit: tuple[Unstructured, ...]
    """As Kubernetes objects, in order."""
    expect: Expect | None


class Scenario(msgspec.Struct, frozen=True):
    """A scenario that has been read and found to make sense."""

    name: str
    document: ScenarioFile
    settings: Settings
    termination: int
    objects: tuple[Unstructured, ...]
    """What is there at the start."""
    steps: tuple[ResolvedMoment, ...]
    file: str = ""
    position_of: Callable[[str], tuple[int, int]] = lambda path: (0, 0)
    """Line and column of a field in the file."""
