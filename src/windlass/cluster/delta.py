"""The changes that the store applies: an object was put or deleted, a bind was sent or failed, a request was refused,
workloads wait for their victims.

Informers, dumps, traces and the simulator all send these; `cluster.store` applies them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.decision import DeviceGrant
from windlass.model.refusal import Refusal

ClusterObject = Any
"""Any decoded object with metadata: node, pod, volume, queue, pod group, owner."""


class Put(msgspec.Struct, frozen=True, gc=False):
    """An object was added or changed; this is the whole object."""

    object: ClusterObject


class Deleted(msgspec.Struct, frozen=True, gc=False):
    """An object was deleted. `key` is `namespace/name`, or the name of a cluster-wide object."""

    kind: str
    key: str
    group: str = ""
    """API group, where several have this kind; empty: any."""


class Assume(msgspec.Struct, frozen=True, gc=False):
    """A bind that was sent: it counts until a Put of the pod confirms or contradicts it."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...] = ()


class Forget(msgspec.Struct, frozen=True, gc=False):
    """An assumed bind that failed: the pod is pending again."""

    pod: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The API server refused a request, and would refuse it again for a while."""

    refusal: Refusal


class Nominated(msgspec.Struct, frozen=True, gc=False):
    """Workloads that the last plan admits as soon as their victims have terminated, in place of earlier ones. For those
    whose pods exist, the pods say the same (`nominatedNodeName`); a suspended Job has none."""

    workloads: frozenset[str]


Delta = Put | Deleted | Assume | Forget | Refused | Nominated
