"""Priority classes: names for the number that orders pods. Decoded from dumps and manifests; queueing reads them."""

from __future__ import annotations

from windlass.model.meta import KubeStruct, ObjectMeta


class PriorityClass(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
