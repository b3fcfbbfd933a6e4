"""Metadata that only the server writes, for `writer` and `deleter`."""

from __future__ import annotations

import uuid
from typing import Any

from windlass.model.unstructured import Unstructured


def with_metadata(tree: Unstructured, **fields: Any) -> Unstructured:
    """The object with changed metadata; None removes a field. Everything else is shared."""
    metadata = {**tree["metadata"], **fields}
    return {**tree, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def init_metadata(tree: Unstructured, name: str, namespace: str, now: str) -> None:
    """Sets the metadata of a new object, in place."""
    metadata = tree["metadata"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    metadata["name"] = name
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now
