"""How much the cluster holds: whatever controllers make of one object, it must not exhaust the machine's memory.

`writer` asks before each write. Deletions, and updates that don't make an object larger, are always possible.
"""

from __future__ import annotations

import msgspec

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.store.store import Store
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

MAX_PODS = 150_000
"""What Kubernetes itself is built for."""
MAX_BYTES = 1 << 30
"""Of all objects, encoded."""
GROWTH_BYTES = 1024
"""An update may add this much to an object even if there is no room: heartbeats, conditions."""


def check_room(
    store: Store, kind: Kind, name: str, old: StoredObject | None = None, new: Unstructured | None = None
) -> None:
    """Raises an `ApiError` if there is no room for a new object, or for the growth of an old one."""
    if old is None and kind.resource == "pods" and len(store.storage("pods")) >= MAX_PODS:
        raise ApiError.forbidden(kind, name, f"this cluster holds at most {MAX_PODS} pods; delete some")
    if store.size_bytes < MAX_BYTES:
        return
    if old is None or len(msgspec.json.encode(new)) > len(old.raw) + GROWTH_BYTES:
        raise ApiError.forbidden(kind, name, f"this cluster holds at most {MAX_BYTES >> 20} MiB; delete something")
