"""Metadata that only the server writes, for `writer` and `deleter`."""

from __future__ import annotations

import calendar
import time
import uuid
from typing import Any

from windlass.model.unstructured import Unstructured


def format_time(seconds: float) -> str:
    """With a resolution of seconds, as Kubernetes writes times in metadata."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def parse_time(timestamp: str) -> float:
    """Seconds since 1970; 0 if it can't be parsed."""
    try:
        return float(calendar.timegm(time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0


def new_uid() -> str:
    return str(uuid.uuid4())


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
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now
