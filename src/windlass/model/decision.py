"""The decisions that `engine.decide` makes. A plan is a list of them; `apply` executes them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.model.verdict import Verdict
from windlass.model.workload import PodSetSize


class DeviceGrant(msgspec.Struct, frozen=True, gc=False):
    """One device of a node, or a part of it."""

    index: int
    milli: int = 1000
    """Milli-GPU of the device (shares, and replicas of a time-sliced GPU)."""
    profile: str = ""
    """MIG profile of an instance; empty for a GPU or a share of one."""
    start: int = -1
    """First memory slice of that instance."""
    replicas: int = 1
    """Of a time-sliced GPU: how many replicas `milli` is."""


def device_indices(grants: Iterable[DeviceGrant]) -> str:
    """As they stand on a pod: a GPU is named once for each replica of it, since the kubelet would take
    the others from any GPU."""
    return ",".join(str(grant.index) for grant in grants for _ in range(grant.replicas))


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Binds the pod to the node and devices, once everything in `after` has terminated."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...] = ()
    after: tuple[str, ...] = ()
    """Evicted workloads that must terminate first; of a workload that keeps running, its evicted pods."""


class AdmittedPodSet(msgspec.Struct, frozen=True, gc=False):
    """How many pods of a set start, with which flavors, and where."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource → flavor."""
    nodes: dict[str, int]
    """Node → pods."""
    wanted: int = 0
    """Size of the set if only some of its pods start; 0 if all do."""


class Admit(msgspec.Struct, frozen=True, gc=False):
    """The whole workload gets quota and nodes."""

    workload: str
    kind: str
    queue: str
    pod_sets: tuple[AdmittedPodSet, ...]
    after: tuple[str, ...] = ()
    note: str = ""
    """What its flavors cost, where its queue tries the cheapest first."""


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Evicts running pods of a workload, for another workload."""

    workload: str
    pods: tuple[str, ...]
    for_workload: str
    reason: str
    """`InClusterQueue`, `Priority`, …; `GangBelowMinimum`, `DurationExceeded` and `LeaveNotice` have no preemptor."""
    lost_gpu_seconds: int = 0
    """GPU time that this eviction loses: since the last checkpoint or the start, and for the restart."""
    least_gpu_seconds: int = 0
    """So much or more is lost together by any victims for the same preemptor that the rules allow and that spare what
    these spare: a lower bound, reached where the search was complete. 0: nothing is known."""
    message: str = ""
    """What its owner should know beyond the reason: why a lost member found no other place."""
    after: tuple[str, ...] = ()
    """Workloads that are asked for the same preemptor: it is evicted when they are, not before."""


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Asks running pods of a workload to write a checkpoint, since they are to be evicted. Frees nothing.

    A later decision evicts them: once they have answered, or at the deadline. The same ask is in every plan until then.
    """

    workload: str
    pods: tuple[str, ...]
    for_workload: str
    reason: str
    """Of the eviction that follows."""
    id: str
    asked_at: int
    until: int
    """The deadline, in seconds."""
    refused_answer: str = ""
    """Why an answer does not count."""
    notice: str = ""
    """Why it has to leave, where that is for no other work: `node n-0 goes: AWS interrupts the spot instance`."""


def ask_cause(ask: Ask) -> str:
    """For a table: `for team/urgent`, `since node n-0 goes: …`."""
    return f"since {ask.notice}" if ask.notice else f"for {ask.for_workload}"


class WithdrawAsk(msgspec.Struct, frozen=True, gc=False):
    """Takes an ask back, from the workload and from these pods."""

    workload: str
    pods: tuple[str, ...]
    id: str
    has_left: bool = False
    """It was evicted, so the ask is over; otherwise it is not needed any more."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """The workload waits, for the reason that the verdict gives."""

    workload: str
    verdict: Verdict


class Reserve(msgspec.Struct, frozen=True, gc=False):
    """Keeps nodes free: for the planned start of a pending workload, or for a calendar reservation."""

    workload: str
    """The workload; `reservation/NAME` for a calendar reservation."""
    domain: str
    """`label=value` of the narrowest domain that contains all of it, or the nodes."""
    start: int
    until: int | None
    """None: its run time has no limit."""
    nodes: dict[str, int]
    """Node → pods."""


class PodSetResize(msgspec.Struct, frozen=True, gc=False):
    """What a pod set of a Workload asks for and holds, before and after."""

    name: str
    owner_count: int
    """Pods that its owner asks for. If that or `before` has changed since, nothing is written."""
    before: PodSetSize
    after: PodSetSize


class Resize(msgspec.Struct, frozen=True, gc=False):
    """The owner of an admitted Workload runs another number of pods: the Workload follows."""

    workload: str
    pod_sets: tuple[PodSetResize, ...]


Decision = Admit | Bind | Ask | WithdrawAsk | Evict | Resize | Reserve | Hold
