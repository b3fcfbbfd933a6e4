"""Which pods a term speaks of: its namespaces and its label selector, in a form that can be a dictionary's
key.

Read out of pods' affinity terms and spread constraints by `terms` and `spread`; the counters and the book of
existing terms are kept per matcher.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from windlass.cluster.listers import Listers
from windlass.model.labels import matches_selector
from windlass.model.meta import LabelSelector, LabelSelectorRequirement
from windlass.model.pod import Pod

LabelPair = tuple[str, str]


def namespace_of(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


class PodMatcher:
    """A pod matches if it is in one of the namespaces (by name or by the namespace's labels) and its labels
    match."""

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
        self.required_label: LabelPair | None = _anchor(selector)
        """A label that every matching pod has; None where no single one can be named."""

    def matches(self, namespace: str, labels: Mapping[str, str], objects: Listers) -> bool:
        return matches_selector(self._selector, labels) and (
            namespace in self._namespaces
            or (
                self._namespace_selector is not None
                and matches_selector(self._namespace_selector, objects.namespace_labels(namespace))
            )
        )

    @property
    def selects_everything(self) -> bool:
        """An empty label selector (not an absent one, which selects nothing)."""
        selector = self._selector
        return selector is not None and not selector.match_labels and not selector.match_expressions


def with_match_label_keys(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    match_keys: Sequence[str],
    mismatch_keys: Sequence[str] = (),
) -> LabelSelector | None:
    """The selector with `matchLabelKeys` and `mismatchLabelKeys` written out from the owner's own labels.

    Keys that the owner lacks are ignored. The API server does this on admission; doing it twice changes
    nothing.
    """
    if selector is None:
        return None
    extra = [_requirement(key, "In", labels[key]) for key in match_keys if key in labels]
    extra += [_requirement(key, "NotIn", labels[key]) for key in mismatch_keys if key in labels]
    if not extra:
        return selector
    return LabelSelector(
        match_labels=selector.match_labels, match_expressions=(*selector.match_expressions, *extra)
    )


def _requirement(key: str, operator: str, value: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=(value,))


def _canonical(selector: LabelSelector | None) -> Hashable:
    if selector is None:
        return None
    parts: set[Hashable] = {(key, "In", (value,)) for key, value in selector.match_labels.items()}
    parts |= {(e.key, e.operator, tuple(sorted(e.values))) for e in selector.match_expressions}
    return frozenset(parts)


def _anchor(selector: LabelSelector | None) -> LabelPair | None:
    if selector is None:
        return None
    for pair in selector.match_labels.items():
        return pair
    for expression in selector.match_expressions:
        if expression.operator == "In" and len(expression.values) == 1:
            return expression.key, expression.values[0]
    return None
