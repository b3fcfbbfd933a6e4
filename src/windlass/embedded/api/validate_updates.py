"""Validation of updates: immutable fields of pods, Job templates, selectors, classes and immutable configuration.

Called by `validation` with the new and the old object. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from typing import Any

from windlass.embedded.api.errors import FieldError, forbidden_field, invalid
from windlass.embedded.api.json_trees import copy_field, deep_copy, nested_value
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
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
}
_CLAIM_RULE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def immutable_field_errors(new: Unstructured, old: Unstructured, *names: str) -> Iterator[FieldError]:
    value, before = nested_value(new, *names), nested_value(old, *names)
    if value != before:
        yield invalid(".".join(names), value, "field is immutable")


def pod_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    spec, before = new["spec"], old["spec"]
    if spec == before:
        return
    yield from _deadline_errors(spec, before)
    yield from _toleration_errors(spec, before)
    yield from _gate_errors(spec, before)
    allowed = _with_allowed_changes(spec, before)
    if allowed != before:
        yield forbidden_field("spec", f"{_POD_RULE}\n{_difference(before, allowed)}")


def _with_allowed_changes(spec: Unstructured, before: Unstructured) -> Unstructured:
    """The new spec with every allowed change undone."""
    reverted = dict(spec)
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) == len(before.get(field) or ()):
            pairs = zip(spec.get(field) or (), before.get(field) or (), strict=True)
            if field in spec:
                reverted[field] = [{**new, "image": old["image"]} if "image" in old else new for new, old in pairs]
    names = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        names.append("terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        # The API allows a gated pod to become more selective.
        names.append("nodeSelector")
        if nested_value(spec, "affinity", "nodeAffinity") != nested_value(before, "affinity", "nodeAffinity"):
            names.append("affinity")
    for name in names:
        copy_field(reverted, before, name)
    return reverted


def _difference(before: Unstructured, after: Unstructured) -> str:
    """A short diff for the message."""
    old, new = (json.dumps(spec, indent=1, sort_keys=True).splitlines() for spec in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    return "\n".join(lines) + "\n"


def _deadline_errors(spec: Unstructured, old_spec: Unstructured) -> Iterator[FieldError]:
    new, old = spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds")
    if old is not None and new is None:
        message = "must not update from a positive integer to nil value"
        yield invalid("spec.activeDeadlineSeconds", None, message)
    elif old is not None and new is not None and new > old:
        yield invalid("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")


def _toleration_errors(spec: Unstructured, old_spec: Unstructured) -> Iterator[FieldError]:
    def identity(toleration: Unstructured) -> Unstructured:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [identity(item) for item in spec.get("tolerations") or ()]
    if any(identity(item) not in kept for item in old_spec.get("tolerations") or ()):
        message = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_field("spec.tolerations", message)


def _gate_errors(spec: Unstructured, old_spec: Unstructured) -> Iterator[FieldError]:
    known = {old_gate["name"] for old_gate in old_spec.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in known:
            message = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield forbidden_field(f"spec.schedulingGates[{index}].name", message)


_SCHEDULING = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def job_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    """Scheduling fields of the template may change while the Job is suspended and has not started."""
    spec, old_spec = new["spec"], old["spec"]
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not indexed:
        yield from immutable_field_errors(new, old, "spec", "completions")
    yield from immutable_field_errors(new, old, "spec", "selector")
    if spec.get("template") != old_spec.get("template"):
        not_started = old_spec.get("suspend") and not nested_value(old, "status", "startTime")
        template = deep_copy(spec["template"])
        if not_started or (old_spec.get("suspend") and not nested_value(old, "status", "active")):
            _restore_scheduling_fields(template, old_spec["template"])
        if template != old_spec["template"]:
            yield invalid("spec.template", spec["template"], "field is immutable")
    yield from immutable_field_errors(new, old, "spec", "completionMode")
    for name in ("podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        yield from immutable_field_errors(new, old, "spec", name)


def _restore_scheduling_fields(template: Unstructured, old_template: Unstructured) -> None:
    for name in _SCHEDULING:
        copy_field(template["spec"], old_template["spec"], name)
    for field in ("containers", "initContainers"):
        pairs = zip(template["spec"].get(field) or (), old_template["spec"].get(field) or (), strict=False)
        for container, old in pairs:
            copy_field(container, old, "resources")
    metadata, old = template.setdefault("metadata", {}), old_template.get("metadata") or {}
    for name in ("labels", "annotations"):
        copy_field(metadata, old, name)


def stateful_set_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    def immutable_fields(spec: Unstructured) -> Unstructured:
        return {key: value for key, value in spec.items() if key not in _STATEFUL_CHANGEABLE}

    if immutable_fields(new["spec"]) != immutable_fields(old["spec"]):
        yield forbidden_field("spec", _STATEFUL_RULE)


def data_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    """ConfigMaps and Secrets that are marked as immutable."""
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
    spec, old_spec = new["spec"], old["spec"]
    have_cluster_ip = spec.get("type") != "ExternalName" and old_spec.get("type") != "ExternalName"
    if have_cluster_ip and old_spec.get("clusterIP") and spec.get("clusterIP") != old_spec["clusterIP"]:
        yield invalid("spec.clusterIPs[0]", [spec.get("clusterIP")], "may not change once set")


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
selector_update_errors = _fixed_fields(("spec", "selector"))


def claim_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    spec, old_spec = deep_copy(new["spec"]), old["spec"]
    if not old_spec.get("volumeName"):
        copy_field(spec, old_spec, "volumeName")
    if nested_value(old, "status", "phase") == "Bound":
        copy_field(spec, old_spec, "resources")
    if spec != old_spec:
        yield forbidden_field("spec", f"{_CLAIM_RULE}\n{_difference(old_spec, spec)}")


def binding_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    if new["roleRef"] != old["roleRef"]:
        role: Any = new["roleRef"]
        shown = {"APIGroup": role.get("apiGroup"), "Kind": role.get("kind"), "Name": role.get("name")}
        yield invalid("roleRef", shown, "cannot change roleRef")


def node_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    for name, field in (("podCIDR", "podCIDRs"), ("providerID", "providerID")):
        old_value = old["spec"].get(name)
        if old_value and new["spec"].get(name) != old_value:
            detail = f'node updates may not change {name} except from "" to valid'
            yield forbidden_field(f"spec.{field}", detail)
