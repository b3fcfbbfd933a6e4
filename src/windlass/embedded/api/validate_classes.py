"""Validation of PriorityClass and RuntimeClass.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, forbidden_field
from windlass.embedded.api.field_checks import choice_errors, name_errors
from windlass.embedded.api.names import dns_label_problems
from windlass.embedded.api.validate_resources import requirement_errors
from windlass.embedded.api.validate_scheduling import placement_errors
from windlass.model.unstructured import Unstructured

_SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")
HIGHEST_PRIORITY = 1_000_000_000


def priority_class_errors(obj: Unstructured) -> Iterator[FieldError]:
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in _SYSTEM_CLASSES:
            yield forbidden_field(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class",
            )
    elif value > HIGHEST_PRIORITY:
        yield forbidden_field("value", f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}")
    yield from choice_errors(obj, "preemptionPolicy", "", ("PreemptLowerPriority", "Never"))


def runtime_class_errors(obj: Unstructured) -> Iterator[FieldError]:
    yield from name_errors("handler", obj.get("handler", ""), dns_label_problems)
    fixed = (obj.get("overhead") or {}).get("podFixed")
    if fixed:
        yield from requirement_errors({"limits": fixed}, "overhead")
    yield from placement_errors(obj.get("scheduling") or {}, "scheduling")
