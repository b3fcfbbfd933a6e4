"""What may not change: pods after they are made, a Job's template, selectors, classes, immutable configuration.

Fed by `api.validation` with the new and the old tree. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from typing import Any

from windlass.embedded.api.errors import FieldError, forbidden_field, invalid
from windlass.embedded.api.json_trees import deep_copy, nested_value
from windlass.model.unstructured import Unstructured

_POD_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_STATEFUL_RULE = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STATEFUL_CHANGEABLE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
}
_CLAIM_RULE = (
    "spec is immutable after creation except resources.requests "
    "and volumeAttributesClassName for bound claims"
)


def immutable_field_errors(new: Unstructured, old: Unstructured, *names: str) -> Iterator[FieldError]:
    """One field that stays what it is."""
    value, before = nested_value(new, *names), nested_value(old, *names)
    if value != before:
        yield invalid(".".join(names), value, "field is immutable")


def pod_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    mine, before = new["spec"], old["spec"]
    if mine == before:
        return
    yield from _deadline_errors(mine, before)
    yield from _toleration_errors(mine, before)
    yield from _gate_errors(mine, before)
    allowed = _with_allowed_changes(mine, before)
    if allowed != before:
        yield forbidden_field("spec", f"{_POD_RULE}\n{_difference(before, allowed)}")


def _with_allowed_changes(mine: Unstructured, before: Unstructured) -> Unstructured:
    """The new spec with everything taken back that may change."""
    made = dict(mine)
    for listed in ("containers", "initContainers"):
        if len(mine.get(listed) or ()) == len(before.get(listed) or ()):
            pairs = zip(mine.get(listed) or (), before.get(listed) or (), strict=True)
            if listed in mine:
                made[listed] = [{**a, "image": b["image"]} if "image" in b else a for a, b in pairs]
    names = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and mine.get("terminationGracePeriodSeconds") == 1:
        names.append("terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        # A pod that is held back may still be steered; the API allows it to become more selective.
        names.append("nodeSelector")
        if nested_value(mine, "affinity", "nodeAffinity") != nested_value(before, "affinity", "nodeAffinity"):
            names.append("affinity")
    for name in names:
        if name in before:
            made[name] = before[name]
        else:
            made.pop(name, None)
    return made


def _difference(before: Unstructured, after: Unstructured) -> str:
    """A few lines that show what is different."""
    old, new = (json.dumps(each, indent=1, sort_keys=True).splitlines() for each in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    return "\n".join(lines) + "\n"


def _deadline_errors(mine: Unstructured, before: Unstructured) -> Iterator[FieldError]:
    new, old = mine.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if old is not None and new is None:
        message = "must not update from a positive integer to nil value"
        yield invalid("spec.activeDeadlineSeconds", None, message)
    elif old is not None and new is not None and new > old:
        yield invalid("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")


def _toleration_errors(mine: Unstructured, before: Unstructured) -> Iterator[FieldError]:
    def identity(toleration: Unstructured) -> Unstructured:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [identity(each) for each in mine.get("tolerations") or ()]
    if any(identity(each) not in kept for each in before.get("tolerations") or ()):
        message = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_field("spec.tolerations", message)


def _gate_errors(mine: Unstructured, before: Unstructured) -> Iterator[FieldError]:
    known = {each["name"] for each in before.get("schedulingGates") or ()}
    for index, gate in enumerate(mine.get("schedulingGates") or ()):
        if gate["name"] not in known:
            message = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield forbidden_field(f"spec.schedulingGates[{index}].name", message)


_SCHEDULING = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def job_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    """The template may still be steered while the Job is suspended and has not begun."""
    mine, before = new["spec"], old["spec"]
    indexed = mine.get("completionMode") == "Indexed" and mine.get("completions") == mine.get("parallelism")
    if not indexed:
        yield from immutable_field_errors(new, old, "spec", "completions")
    yield from immutable_field_errors(new, old, "spec", "selector")
    if mine.get("template") != before.get("template"):
        steerable = before.get("suspend") and not nested_value(old, "status", "startTime")
        template = deep_copy(mine["template"])
        if steerable or (before.get("suspend") and not nested_value(old, "status", "active")):
            _take_back(template, before["template"])
        if template != before["template"]:
            yield invalid("spec.template", mine["template"], "field is immutable")
    yield from immutable_field_errors(new, old, "spec", "completionMode")
    for name in ("podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        yield from immutable_field_errors(new, old, "spec", name)


def _take_back(template: Unstructured, before: Unstructured) -> None:
    for name in _SCHEDULING:
        _restore(template["spec"], before["spec"], name)
    for listed in ("containers", "initContainers"):
        pairs = zip(template["spec"].get(listed) or (), before["spec"].get(listed) or (), strict=False)
        for container, earlier in pairs:
            _restore(container, earlier, "resources")
    metadata, earlier = template.setdefault("metadata", {}), before.get("metadata") or {}
    for name in ("labels", "annotations"):
        _restore(metadata, earlier, name)


def _restore(tree: Unstructured, before: Unstructured, name: str) -> None:
    if name in before:
        tree[name] = deep_copy(before[name])
    else:
        tree.pop(name, None)


def selector_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    yield from immutable_field_errors(new, old, "spec", "selector")


def stateful_set_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    def fixed(spec: Unstructured) -> Unstructured:
        return {key: value for key, value in spec.items() if key not in _STATEFUL_CHANGEABLE}

    if fixed(new["spec"]) != fixed(old["spec"]):
        yield forbidden_field("spec", _STATEFUL_RULE)


def data_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    """ConfigMaps and Secrets that have said that they never change."""
    rule = "field is immutable when `immutable` is set"
    if old.get("immutable"):
        if not new.get("immutable"):
            yield forbidden_field("immutable", rule)
        for name in ("data", "binaryData"):
            if new.get(name) != old.get(name):
                yield forbidden_field(name, rule)


def secret_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    yield from immutable_field_errors(new, old, "type")
    yield from data_update_errors(new, old)


def service_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    mine, before = new["spec"], old["spec"]
    both = mine.get("type") != "ExternalName" and before.get("type") != "ExternalName"
    if both and before.get("clusterIP") and mine.get("clusterIP") != before["clusterIP"]:
        yield invalid("spec.clusterIPs[0]", [mine.get("clusterIP")], "may not change once set")


def priority_class_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    if new.get("value") != old.get("value"):
        yield forbidden_field("value", "may not be changed in an update.")
    yield from immutable_field_errors(new, old, "preemptionPolicy")


def _fixed_fields(*paths: tuple[str, ...]) -> Callable[[Unstructured, Unstructured], Iterator[FieldError]]:
    def check(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
        for path in paths:
            yield from immutable_field_errors(new, old, *path)

    return check


storage_class_update_errors = _fixed_fields(
    ("parameters",), ("provisioner",), ("reclaimPolicy",), ("volumeBindingMode",)
)
runtime_class_update_errors = _fixed_fields(("handler",))
quota_update_errors = _fixed_fields(("spec", "scopes"))


def claim_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    mine, before = deep_copy(new["spec"]), old["spec"]
    if not before.get("volumeName"):
        _restore(mine, before, "volumeName")
    if nested_value(old, "status", "phase") == "Bound":
        _restore(mine, before, "resources")
    if mine != before:
        yield forbidden_field("spec", f"{_CLAIM_RULE}\n{_difference(before, mine)}")


def binding_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    if new["roleRef"] != old["roleRef"]:
        role: Any = new["roleRef"]
        shown = {"APIGroup": role.get("apiGroup"), "Kind": role.get("kind"), "Name": role.get("name")}
        yield invalid("roleRef", shown, "cannot change roleRef")


def node_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    for name, field in (("podCIDR", "podCIDRs"), ("providerID", "providerID")):
        before = old["spec"].get(name)
        if before and new["spec"].get(name) != before:
            yield forbidden_field(
                f"spec.{field}", f'node updates may not change {name} except from "" to valid'
            )
