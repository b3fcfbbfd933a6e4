"""PriorityClasses. Decoded by `model.codec`; `queueing` reads them.

`resolve_priorities` does for pods of a manifest what the API server does for submitted pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import Pod

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has, whether or not a dump shows them."""


class PriorityClass(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


def resolve_priorities(manifest: Iterable[object]) -> list[object]:
    """The same objects; pods have the priority and preemptionPolicy of their class or of the default class."""
    objects = list(manifest)
    classes = {obj.metadata.name: obj for obj in objects if isinstance(obj, PriorityClass)}
    for name, value in SYSTEM_PRIORITIES.items():
        classes.setdefault(name, PriorityClass(ObjectMeta(name=name), value))
    return [_filled(obj, classes) if isinstance(obj, Pod) else obj for obj in objects]


def default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods that name none. Of several defaults the lowest value counts, as in the API server."""
    defaults = [candidate for candidate in classes if candidate.global_default]
    return min(defaults, key=lambda candidate: (candidate.value, candidate.metadata.name), default=None)


def _filled(pod: Pod, classes: Mapping[str, PriorityClass]) -> Pod:
    spec = pod.spec
    if spec.priority or (pod.metadata.uid and not spec.priority_class_name):
        return pod  # already resolved by the API server
    default = default_class(classes.values())
    chosen = classes.get(spec.priority_class_name) if spec.priority_class_name else default
    if chosen is None:
        return pod
    policy = chosen.preemption_policy if spec.preemption_policy == "PreemptLowerPriority" else ""
    made = msgspec.structs.replace(spec, priority=chosen.value, preemption_policy=policy or spec.preemption_policy)
    return msgspec.structs.replace(pod, spec=made)
