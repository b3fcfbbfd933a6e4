"""What a pod's row is born with: its shape, whether it is plain, and its priority.

The store asks for every pod that comes in. Pods that share all that counts by identity, as those of a trace do, are
read once.
"""

from __future__ import annotations

from windlass.cluster.pod_table import UNREADABLE, PodTraits
from windlass.cluster.resource_columns import ResourceColumns
from windlass.cluster.shape import ShapeRegistry
from windlass.model.errors import InputError
from windlass.model.pod import Pod

MAX_CACHED_TRAITS = 4096
"""Pods of whose like the traits are kept."""


class PodTraitsCache:
    def __init__(self, shapes: ShapeRegistry, resources: ResourceColumns, unreadable: dict[str, str]) -> None:
        """`unreadable`: pod → why; what can't be read is written down there."""
        self._shapes, self._resources = shapes, resources
        self._unreadable = unreadable
        self._known: dict[tuple[int, int, int, str], tuple[Pod, PodTraits]] = {}

    def of(self, key: str, pod: Pod) -> PodTraits:
        meta = pod.metadata
        alike = (id(pod.spec), id(meta.labels), id(meta.annotations), meta.namespace)
        known = self._known.get(alike)
        if known is not None:
            return known[1]
        traits = self._read(key, pod)
        if traits.node_local:  # the others may depend on the pod's name
            if len(self._known) >= MAX_CACHED_TRAITS:
                self._known.clear()
            self._known[alike] = (pod, traits)  # with the pod, so that no other gets these identities
        return traits

    def _read(self, key: str, pod: Pod) -> PodTraits:
        number, plain = UNREADABLE, 0
        known = len(self._shapes)
        try:
            shape, is_plain = self._shapes.intern(pod)
            number, plain = shape.number, int(is_plain)
            if len(self._shapes) > known:
                for name, _ in shape.requests:
                    self._resources.column(name)
        except InputError as error:
            self._unreadable[key] = str(error)
        return PodTraits(number, plain, pod.spec.priority)
