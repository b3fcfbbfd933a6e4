"""One Event, two faces: `v1` as it is stored, and `events.k8s.io/v1`, which names its fields differently.

Fed by the server at its edges: what comes in or goes out as `events.k8s.io` is turned here. Field names are the
Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, invalid
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
    """From the stored form to `events.k8s.io/v1`. Shares what lies below."""
    made = {_TO_EVENTS.get(name, name): value for name, value in obj.items()}
    made["apiVersion"] = "events.k8s.io/v1"
    return made


def to_core_v1(obj: Unstructured) -> Unstructured:
    """From `events.k8s.io/v1` to the stored form. Shares what lies below."""
    made = {_TO_CORE.get(name, name): value for name, value in obj.items()}
    made["apiVersion"] = "v1"
    return made


def event_errors(obj: Unstructured) -> Iterator[FieldError]:
    involved = obj["involvedObject"].get("namespace", "")
    mine = obj["metadata"].get("namespace", "")
    if involved != mine and (involved or mine not in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", involved, "does not match event.namespace")
