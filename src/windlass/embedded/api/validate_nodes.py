"""Validation of Nodes and Leases.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, duplicate, invalid, required
from windlass.embedded.api.field_checks import choice_errors, minimum_errors, problem_errors
from windlass.embedded.api.names import label_key_problems, label_value_problems
from windlass.embedded.api.structural_schema import is_network
from windlass.embedded.api.validate_resources import quantity_errors
from windlass.embedded.api.validate_scheduling import EFFECTS
from windlass.model.unstructured import Unstructured


def node_errors(obj: Unstructured) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(obj["spec"].get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        yield from problem_errors(f"{path}.key", key, label_key_problems)
        yield from problem_errors(f"{path}.value", taint.get("value", ""), label_value_problems)
        if not effect:
            yield required(f"{path}.effect")
        else:
            yield from choice_errors(taint, "effect", path, EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect, "TimeAdded": None}
            message = f"{duplicate('', shown).body}: taints must be unique by key and effect pair"
            yield FieldError(path, "FieldValueDuplicate", message)
        seen.add((key, effect))
    status = obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, value in (status.get(field) or {}).items():
            yield from quantity_errors(name, value, f"status.{field}.{name}")
    cidr = obj["spec"].get("podCIDR")
    if cidr and not is_network(cidr):
        detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield invalid("spec.podCIDRs[0]", cidr, detail)


def lease_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from minimum_errors(spec, "leaseTransitions", "spec")
