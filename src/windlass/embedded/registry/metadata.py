"""Metadata that only the server may write, and small work on trees.

Used by everything in `registry`.
"""

from __future__ import annotations

import calendar
import time
import uuid
from typing import Any

from windlass.model.unstructured import Unstructured


def format_time(moment: float) -> str:
    """Seconds, as Kubernetes writes times in metadata."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def parse_time(stamp: str) -> float:
    """The moment of such a time; 0 where it can't be read."""
    try:
        return float(calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0


def new_uid() -> str:
    return str(uuid.uuid4())


def with_metadata(tree: Unstructured, **fields: Any) -> Unstructured:
    """A tree with other metadata; a field that is None is left out. The rest is shared."""
    metadata = {**tree["metadata"], **fields}
    return {**tree, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def init_metadata(tree: Unstructured, name: str, namespace: str, now: str) -> None:
    """The metadata of an object's first moment, in place."""
    metadata = tree["metadata"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    metadata["name"] = name
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now
