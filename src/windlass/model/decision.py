"""What `decide` can decide. A plan is a list of these; `apply` carries them out, and never decides itself."""

from __future__ import annotations

import msgspec

from windlass.model.verdict import Verdict


class DeviceGrant(msgspec.Struct, frozen=True, gc=False):
    """One device of a node, or a part of it."""

    index: int
    milli: int = 1000
    """Milli-GPU of the device (shares, and replicas of a time-sliced GPU)."""
    profile: str = ""
    """MIG profile, where an instance is given."""
    start: int = -1
    """First memory slice of that instance."""


class Bind(msgspec.Struct, frozen=True, gc=False):
    """The pod goes to the node, on these devices, once what stands in `after` is gone."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...] = ()
    after: tuple[str, ...] = ()
    """Workloads that must go first; or, of one that stays, the pods."""


class AdmittedPodSet(msgspec.Struct, frozen=True, gc=False):
    """How many pods of a set start, on which flavors, and where."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource → flavor."""
    nodes: dict[str, int]
    """Node → pods."""
    wanted: int = 0
    """Pods that the set asks for in all, where only some of them start; 0 where all do."""


class Admit(msgspec.Struct, frozen=True, gc=False):
    """The workload gets its quota and its place, whole."""

    workload: str
    kind: str
    queue: str
    pod_sets: tuple[AdmittedPodSet, ...]
    after: tuple[str, ...] = ()


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Running pods of a workload have to go, for another's sake."""

    workload: str
    pods: tuple[str, ...]
    for_workload: str
    reason: str
    """`InClusterQueue`, `Priority`, …; `GangBelowMinimum` and `DurationExceeded` are for nobody's sake."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """The workload waits, for the reason that the verdict gives."""

    workload: str
    verdict: Verdict


class Reserve(msgspec.Struct, frozen=True, gc=False):
    """Room is kept: for the planned start of a workload that waits, or for a calendar reservation."""

    workload: str
    """The workload; `reservation/NAME` for a calendar reservation."""
    domain: str
    """`label=value` of the narrowest domain that holds all of it, or the nodes."""
    start: int
    until: int | None
    """None: its run time is not bounded."""
    nodes: dict[str, int]
    """Node → pods."""


Decision = Admit | Bind | Evict | Reserve | Hold
