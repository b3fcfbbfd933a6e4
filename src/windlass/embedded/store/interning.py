"""One copy of what is written alike in thousands of objects: who manages which field, containers, conditions.

`store.store` passes every tree through here before it keeps it. `managedFields` is more than half of a pod as Python
sees it, and pods of one kind differ in it by their address alone; so its parts, two levels down, are kept once and
shared. Nobody changes a stored tree, so nobody notices.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_INTERNED = 20_000
"""Different parts that are remembered; beyond, remembering starts anew."""
IN_SPEC, IN_STATUS = ("containers", "tolerations"), ("capacity", "allocatable")
_encode = msgspec.json.Encoder().encode


class FieldInterner:
    def __init__(self, max_interned: int = MAX_INTERNED) -> None:
        self._known: dict[bytes, Any] = {}
        self._most = max_interned

    def intern(self, tree: dict[str, Any]) -> None:
        """Put known parts in the place of equal ones."""
        for entry in tree["metadata"].get("managedFields") or ():
            fields = entry.get("fieldsV1")
            if type(fields) is dict:
                entry["fieldsV1"] = {name: self._below(part) for name, part in fields.items()}
        spec = tree.get("spec")
        if type(spec) is dict and "containers" in spec:
            shared = {name: self._one(spec[name]) for name in IN_SPEC if name in spec}
            tree["spec"] = {**spec, **shared}
        status = tree.get("status")
        if type(status) is dict and type(status.get("conditions")) is list:
            shared = {name: self._one(status[name]) for name in IN_STATUS if name in status}
            shared["conditions"] = [self._one(each) for each in status["conditions"]]
            tree["status"] = {**status, **shared}

    def _below(self, part: Any) -> Any:
        if type(part) is not dict or not part:
            return self._one(part)
        return {name: self._one(each) for name, each in part.items()}

    def _one(self, part: Any) -> Any:
        text = _encode(part)
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= self._most:
                self._known.clear()
            known = self._known[text] = part
        return known
