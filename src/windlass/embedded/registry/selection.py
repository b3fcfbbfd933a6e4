"""Label and field selectors of a request, parsed once and applied to every object of a list or watch."""

from __future__ import annotations

from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.selectors import Match, field_selector, label_selector
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured


class Selection:
    __slots__ = ("_fields", "_labels")

    def __init__(self, labels: Match | None, fields: Match | None) -> None:
        self._labels, self._fields = labels, fields

    @classmethod
    def parse(cls, kind: Kind, selector: str, fields: str, selectable: tuple[str, ...] = ()) -> Selection | None:
        """None if everything matches."""
        if not selector and not fields:
            return None
        label_match, field_match = label_selector(selector), field_selector(fields, kind, selectable)
        return None if label_match is None and field_match is None else cls(label_match, field_match)

    def matches(self, tree: Unstructured) -> bool:
        if self._labels is not None and not self._labels(tree):
            return False
        return self._fields is None or self._fields(tree)

    def matches_stored(self, stored: StoredObject) -> bool:
        return self.matches(stored.tree)
