"""Priority classes: names for the number that orders pods. Decoded from dumps and manifests; queueing reads them."""

from __future__ import annotations

from windlass.model.meta import KubeStruct, ObjectMeta

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has, whether or not a dump shows them."""


class PriorityClass(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
