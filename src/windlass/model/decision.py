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
    """The pod goes to the node, on these devices."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...] = ()


class Hold(msgspec.Struct, frozen=True, gc=False):
    """The workload waits, for the reason that the verdict gives."""

    workload: str
    verdict: Verdict


Decision = Bind | Hold
