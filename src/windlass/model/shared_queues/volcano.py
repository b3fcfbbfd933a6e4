"""Reads Volcano's Queue (`scheduling.volcano.sh/v1beta1`), as its capacity plugin means it.

`deserved` is what a queue can reclaim, `guarantee` what is kept for it, `capability` the most that it gets. Field names
are Volcano's interface (Apache-2.0).
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue.queue_wire import QueueObject
from windlass.model.kueue.queues import unimplemented_fields_message
from windlass.model.meta import KubeStruct
from windlass.model.pod import RawQuantity
from windlass.model.queue_names import VOLCANO_PREFIX
from windlass.model.quota import parse_quota
from windlass.model.shared_queues.quota_tree import SharedQueue

ROOT_QUEUE = "root"
OPEN_STATES = ("", "Open")


class VolcanoGuarantee(KubeStruct, frozen=True):
    resource: dict[str, RawQuantity] = msgspec.field(default_factory=dict)


class VolcanoQueueSpec(KubeStruct, frozen=True):
    weight: int = 1
    capability: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    deserved: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    guarantee: VolcanoGuarantee = VolcanoGuarantee()
    reclaimable: bool = True
    parent: str = ""
    priority: int = 0
    dequeue_strategy: str = "traverse"
    affinity: dict[str, Any] | None = None
    extend_clusters: tuple[dict[str, Any], ...] = ()
    type: str = ""


class VolcanoQueueStatus(KubeStruct, frozen=True):
    state: str = ""


class VolcanoQueueObject(QueueObject, frozen=True):
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoQueueStatus = VolcanoQueueStatus()


def volcano_queue_from_object(wire: VolcanoQueueObject) -> SharedQueue:
    spec = wire.spec
    if not wire.name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    parent = "" if wire.name == ROOT_QUEUE else spec.parent
    quota: dict[str, int | None] = {}
    quota |= _amounts(spec.deserved, "spec.deserved")
    return SharedQueue(
        f"{VOLCANO_PREFIX}{wire.name}",
        f"{VOLCANO_PREFIX}{parent}" if parent and parent != ROOT_QUEUE else "",
        quota,
        _amounts(spec.capability, "spec.capability"),
        _amounts(spec.guarantee.resource, "spec.guarantee.resource"),
        weight_milli=1000 * max(0, spec.weight),
        priority=spec.priority,
        reclaimable=spec.reclaimable,
        strict_order=spec.dequeue_strategy == "fifo",
        is_closed=wire.status.state not in OPEN_STATES,
        inactive_reason=_not_implemented(spec) or unimplemented_fields_message(wire.unread_fields),
    )


def _amounts(given: dict[str, RawQuantity], path: str) -> dict[str, int]:
    found = {}
    for resource, raw in given.items():
        try:
            found[resource] = parse_quota(resource, raw)
        except InputError as error:
            raise InputError(error.message, path=f"{path}.{resource}", remedy=error.remedy) from None
    return found


def _not_implemented(spec: VolcanoQueueSpec) -> str:
    if spec.affinity:
        return "spec.affinity: groups of nodes are not implemented"
    return "spec.extendClusters: other clusters are not implemented" if spec.extend_clusters else ""
