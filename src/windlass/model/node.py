"""A node, as far as placement reads it.

Decoded from watch events, dumps and manifests; built from a Fleet or a trace's node list. `model.gpu` reads its
GPUs out of labels and allocatable; `cluster` turns it into one row.
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import RawQuantity


class Taint(KubeStruct, frozen=True):
    """`effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(KubeStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(KubeStruct, frozen=True):
    type: str
    status: str
    message: str = ""


class NodeStatus(KubeStruct, frozen=True):
    capacity: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    allocatable: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels
