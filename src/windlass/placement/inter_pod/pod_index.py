"""Finds, among many matchers, those that match a pod, without trying them all.

Every job brings selectors of its own, so their number is unbounded; but nearly all of them name one label
that a pod must have. Matchers are filed under that label, and a pod looks only under the labels that it has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from windlass.cluster.listers import Listers
from windlass.placement.inter_pod.pod_matchers import LabelPair, PodMatcher

T = TypeVar("T")


class MatcherIndex(Generic[T]):
    """Values filed under a group of matchers, all of which a pod has to match."""

    def __init__(self, objects: Listers) -> None:
        self._objects = objects
        self._filed: dict[LabelPair | None, dict[Hashable, tuple[tuple[PodMatcher, ...], T]]] = {}

    def __bool__(self) -> bool:
        return bool(self._filed)

    def put(self, key: Hashable, matchers: tuple[PodMatcher, ...], value: T) -> None:
        self._filed.setdefault(required_label_of(matchers), {})[key] = (matchers, value)

    def drop(self, key: Hashable, matchers: tuple[PodMatcher, ...]) -> None:
        anchor = required_label_of(matchers)
        drawer = self._filed[anchor]
        del drawer[key]
        if not drawer:
            del self._filed[anchor]

    def matching(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The values whose matchers all match a pod with these labels in this namespace."""
        for anchor in (None, *labels.items()):
            for matchers, value in self._filed.get(anchor, {}).values():
                if all(m.matches(namespace, labels, self._objects) for m in matchers):
                    yield value


def required_label_of(matchers: tuple[PodMatcher, ...]) -> LabelPair | None:
    return next((m.required_label for m in matchers if m.required_label is not None), None)
