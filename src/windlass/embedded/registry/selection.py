"""Which objects a request is about: label and field selectors, parsed once and asked for every object."""

from __future__ import annotations

from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.selectors import Match, field_selector, label_selector
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured


class Selection:
    """Label and field terms; all of them must hold."""

    __slots__ = ("_fields", "_labels")

    def __init__(self, labels: Match | None, fields: Match | None) -> None:
        self._labels, self._fields = labels, fields

    @classmethod
    def parse(
        cls, kind: Kind, selector: str, fields: str, selectable: tuple[str, ...] = ()
    ) -> Selection | None:
        """None where everything matches."""
        if not selector and not fields:
            return None
        one, other = label_selector(selector), field_selector(fields, kind, selectable)
        return None if one is None and other is None else cls(one, other)

    def matches(self, tree: Unstructured) -> bool:
        if self._labels is not None and not self._labels(tree):
            return False
        return self._fields is None or self._fields(tree)

    def matches_stored(self, stored: StoredObject) -> bool:
        return self.matches(stored.tree)
