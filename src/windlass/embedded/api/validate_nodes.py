"""Validation of Nodes and Leases.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, duplicate, invalid, required, unsupported
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
        for problem in label_key_problems(key):
            yield invalid(f"{path}.key", key, problem)
        for problem in label_value_problems(taint.get("value", "")):
            yield invalid(f"{path}.value", taint["value"], problem)
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in EFFECTS:
            yield unsupported(f"{path}.effect", effect, EFFECTS)
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
        yield invalid(
            "spec.podCIDRs[0]", cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )


def lease_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
