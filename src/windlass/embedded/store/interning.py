"""Keeps one copy of parts that are equal in thousands of objects: managed fields, containers, conditions.

`store` passes every object through it. `managedFields` is more than half of a pod's memory, and pods of one owner
differ in it only by their address; so its parts, two levels down, are shared. Stored objects are never modified, so
sharing is safe.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_INTERNED = 20_000
"""Limit of remembered parts; when it is reached, all are forgotten."""
MAX_INTERNED_BYTES = 32 << 20
IN_SPEC, IN_STATUS = ("containers", "tolerations"), ("capacity", "allocatable")
_encode = msgspec.json.Encoder().encode


class FieldInterner:
    def __init__(self, max_interned: int = MAX_INTERNED) -> None:
        self._known: dict[bytes, Any] = {}
        self._max_interned, self._bytes = max_interned, 0

    def intern(self, tree: dict[str, Any]) -> None:
        """Replaces parts by equal ones that are known."""
        for entry in tree["metadata"].get("managedFields") or ():
            fields = entry.get("fieldsV1")
            if type(fields) is dict:
                entry["fieldsV1"] = {name: self._intern_fields(part) for name, part in fields.items()}
        spec = tree.get("spec")
        if type(spec) is dict and "containers" in spec:
            shared = {name: self._intern_part(spec[name]) for name in IN_SPEC if name in spec}
            tree["spec"] = {**spec, **shared}
        status = tree.get("status")
        if type(status) is dict and type(status.get("conditions")) is list:
            shared = {name: self._intern_part(status[name]) for name in IN_STATUS if name in status}
            shared["conditions"] = [self._intern_part(condition) for condition in status["conditions"]]
            tree["status"] = {**status, **shared}

    def _intern_fields(self, part: Any) -> Any:
        if type(part) is not dict or not part:
            return self._intern_part(part)
        return {name: self._intern_part(value) for name, value in part.items()}

    def _intern_part(self, part: Any) -> Any:
        text = _encode(part)
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= self._max_interned or self._bytes > MAX_INTERNED_BYTES:
                self._known.clear()
                self._bytes = 0
            known = self._known[text] = part
            self._bytes += len(text)
        return known
