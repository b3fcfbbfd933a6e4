"""Which pods a term selects (namespaces and label selector, hashable), and an index over many such matchers.

`pod_affinity` and `topology_spread` build matchers from the terms of a pod; `match_counters` and `existing_terms`
keep their values per matcher.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from windlass.cluster.listers import Listers
from windlass.model.labels import matches_selector
from windlass.model.meta import LabelSelector, LabelSelectorRequirement
from windlass.model.pod import Pod

LabelPair = tuple[str, str]
T = TypeVar("T")


def namespace_of(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


class PodMatcher:
    """Matches a pod in one of the namespaces (by name or by the namespace's labels) whose labels match."""

    __slots__ = ("_namespace_selector", "_namespaces", "_selector", "key", "required_label")

    def __init__(
        self,
        namespaces: frozenset[str],
        namespace_selector: LabelSelector | None,
        selector: LabelSelector | None,
    ) -> None:
        self._namespaces = namespaces
        self._namespace_selector = namespace_selector
        self._selector = selector
        self.key: Hashable = (namespaces, _canonical(namespace_selector), _canonical(selector))
        self.required_label: LabelPair | None = _required_label(selector)
        """A label that every matching pod has; None where no single one can be named."""

    def matches(self, namespace: str, labels: Mapping[str, str], listers: Listers) -> bool:
        return matches_selector(self._selector, labels) and (
            namespace in self._namespaces
            or (
                self._namespace_selector is not None
                and matches_selector(self._namespace_selector, listers.namespace_labels(namespace))
            )
        )

    @property
    def selects_everything(self) -> bool:
        """An empty label selector (not an absent one, which selects nothing)."""
        selector = self._selector
        return selector is not None and not selector.match_labels and not selector.match_expressions


class MatcherIndex(Generic[T]):
    """Values by group of matchers; a pod has to match the whole group.

    Every job brings its own selectors, so their number is unbounded, but nearly all of them name one label that a
    pod must have. Groups are indexed by that label, and a lookup reads only the entries of the pod's own labels.
    """

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._by_label: dict[LabelPair | None, dict[Hashable, tuple[tuple[PodMatcher, ...], T]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_label)

    def put(self, key: Hashable, matchers: tuple[PodMatcher, ...], value: T) -> None:
        self._by_label.setdefault(required_label_of(matchers), {})[key] = (matchers, value)

    def drop(self, key: Hashable, matchers: tuple[PodMatcher, ...]) -> None:
        label = required_label_of(matchers)
        entries = self._by_label[label]
        del entries[key]
        if not entries:
            del self._by_label[label]

    def matching(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The values whose matchers all match a pod with these labels in this namespace."""
        # None holds the groups without a label that can be named; they are checked for every pod.
        for label in (None, *labels.items()):
            for matchers, value in self._by_label.get(label, {}).values():
                if all(matcher.matches(namespace, labels, self._listers) for matcher in matchers):
                    yield value


def required_label_of(matchers: tuple[PodMatcher, ...]) -> LabelPair | None:
    labels = (matcher.required_label for matcher in matchers)
    return next((label for label in labels if label is not None), None)


def with_match_label_keys(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    match_keys: Sequence[str],
    mismatch_keys: Sequence[str] = (),
) -> LabelSelector | None:
    """The selector with `matchLabelKeys` and `mismatchLabelKeys` resolved from the labels of the pod that has it.

    Keys that the pod lacks are ignored. The API server does this on admission; doing it twice changes nothing.
    """
    if selector is None:
        return None
    extra = [_requirement(key, "In", labels[key]) for key in match_keys if key in labels]
    extra += [_requirement(key, "NotIn", labels[key]) for key in mismatch_keys if key in labels]
    if not extra:
        return selector
    return LabelSelector(match_labels=selector.match_labels, match_expressions=(*selector.match_expressions, *extra))


def _requirement(key: str, operator: str, value: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=(value,))


def _canonical(selector: LabelSelector | None) -> Hashable:
    """The same key for selectors that differ only in order, or in matchLabels against matchExpressions."""
    if selector is None:
        return None
    parts: set[Hashable] = {(key, "In", (value,)) for key, value in selector.match_labels.items()}
    parts |= {
        (expression.key, expression.operator, tuple(sorted(expression.values)))
        for expression in selector.match_expressions
    }
    return frozenset(parts)


def _required_label(selector: LabelSelector | None) -> LabelPair | None:
    if selector is None:
        return None
    for pair in selector.match_labels.items():
        return pair
    for expression in selector.match_expressions:
        if expression.operator == "In" and len(expression.values) == 1:
            return expression.key, expression.values[0]
    return None
