"""Conversion between `v1` Events, as they are stored, and `events.k8s.io/v1`, which names the fields differently.

`registry.context` converts requests and responses. Field names are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, invalid
from windlass.model.names.kubernetes import EVENTS_API_VERSION
from windlass.model.unstructured import Unstructured

_PAIRS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_TO_EVENTS = dict(_PAIRS)
_TO_CORE = {new: old for old, new in _PAIRS}


def to_events_v1(obj: Unstructured) -> Unstructured:
    """From the stored form to `events.k8s.io/v1`; nested values are shared."""
    event = {_TO_EVENTS.get(name, name): value for name, value in obj.items()}
    event["apiVersion"] = EVENTS_API_VERSION
    return event


def to_core_v1(obj: Unstructured) -> Unstructured:
    """From `events.k8s.io/v1` to the stored form; nested values are shared."""
    event = {_TO_CORE.get(name, name): value for name, value in obj.items()}
    event["apiVersion"] = "v1"
    return event


def event_errors(obj: Unstructured) -> Iterator[FieldError]:
    involved = obj["involvedObject"].get("namespace", "")
    own = obj["metadata"].get("namespace", "")
    if involved != own and (involved or own not in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", involved, "does not match event.namespace")
