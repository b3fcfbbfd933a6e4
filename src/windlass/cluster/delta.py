"""What every source says: an object is now like this, or is gone.

Informers, dumps, traces and the simulator's own outcomes all speak these; `cluster.store` applies them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.decision import DeviceGrant
from windlass.model.refusal import Refusal

ClusterObject = Any
"""Any decoded object with metadata: nodes, pods, volumes, queues, pod groups, owners; the store knows its own."""


class Put(msgspec.Struct, frozen=True, gc=False):
    """An object was added or changed; this is all of it."""

    object: ClusterObject


class Deleted(msgspec.Struct, frozen=True, gc=False):
    """An object was deleted. `key` is `namespace/name`, or the name of a cluster-wide object."""

    kind: str
    key: str
    group: str = ""
    """API group, where several have a kind of that name; empty: whichever has it."""


class Assume(msgspec.Struct, frozen=True, gc=False):
    """A bind that was sent off: counted as if it had happened until a Put of the pod confirms or denies it."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...] = ()


class Forget(msgspec.Struct, frozen=True, gc=False):
    """An assumed bind that failed: the pod is pending again."""

    pod: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The API server said no, and will for a while."""

    refusal: Refusal


Delta = Put | Deleted | Assume | Forget | Refused
