"""What admission changes in an owner, and how that is undone: pure functions on its tree.

`apply.owner_starts` sends the differences. As in Kueue, the pods of an admitted owner get the node labels and the
tolerations of their flavors, and a Job with partial admission the `parallelism` that was admitted. The pod sets of the
Workload say what stood there before.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import msgspec

from windlass.apply.owners import SUSPEND_FIELDS, pod_templates_of
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import ResourceFlavorSpec
from windlass.model.kueue.workload_wire import PodSetSpec
from windlass.model.names.kueue import (
    COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION,
    MIN_PARALLELISM_ANNOTATION,
    STOPPING_ANNOTATION,
)
from windlass.model.pod import PodSpec, Toleration
from windlass.model.unstructured import Unstructured

FlavorsBySet = Mapping[str, Sequence[ResourceFlavorSpec]]
"""Pod set → the flavors of its admission."""


def started_owner(raw: Unstructured, workload: WorkloadObject, flavors: FlavorsBySet) -> Unstructured:
    """The owner as it runs. Where it was not suspended, its pods exist and its templates can't be changed any more."""
    started = _with_suspend(raw, False)
    _annotations(started).pop(STOPPING_ANNOTATION, None)
    templates = pod_templates_of(started) if _is_suspended(raw) else {}
    for pod_set in workload.spec.pod_sets:
        if pod_set.name in templates:
            spec = templates[pod_set.name].setdefault("spec", {})
            _add_flavors(spec, pod_set, flavors.get(pod_set.name, ()))
    admission = workload.status.admission
    for part in admission.pod_set_assignments if admission is not None else ():
        if part.count is not None:
            _set_parallelism(started, part.count)
    return started


def stopped_owner(raw: Unstructured, workload: Unstructured) -> Unstructured:
    """The owner as it was before it was started, suspended; `workload` is the tree of its Workload."""
    stopped = _with_suspend(raw, True)
    _annotations(stopped).pop(STOPPING_ANNOTATION, None)
    templates = pod_templates_of(stopped)
    for pod_set in workload["spec"]["podSets"]:
        if pod_set["name"] not in templates:
            continue
        spec, before = templates[pod_set["name"]].setdefault("spec", {}), pod_set["template"].get("spec") or {}
        for field in ("nodeSelector", "tolerations"):
            spec.pop(field, None)
            if field in before:
                spec[field] = before[field]
        _set_parallelism(stopped, pod_set["count"])
    return stopped


def pod_changes(spec: PodSpec, flavors: Sequence[ResourceFlavorSpec]) -> Unstructured:
    """The fields of a pod's spec that its flavors change."""
    changes: Unstructured = {}
    selector, tolerations = _with_flavors(spec, flavors)
    if selector != spec.node_selector:
        changes["nodeSelector"] = selector
    if tolerations != spec.tolerations:
        changes["tolerations"] = [msgspec.to_builtins(toleration) for toleration in tolerations]
    return changes


def merge_difference(before: Unstructured, after: Unstructured) -> Unstructured:
    """The JSON merge patch from one tree to the other; lists are replaced whole."""
    patch: Unstructured = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            difference = merge_difference(old, value)
            if difference:
                patch[name] = difference
        elif value != old:
            patch[name] = value
    return patch


def _add_flavors(spec: Unstructured, pod_set: PodSetSpec, flavors: Sequence[ResourceFlavorSpec]) -> None:
    """Starts from the Workload's template: the owner may still have the flavors of an earlier admission."""
    selector, tolerations = _with_flavors(pod_set.template.spec, flavors)
    if selector != (spec.get("nodeSelector") or {}):
        spec["nodeSelector"] = selector
    if tolerations != msgspec.convert(spec.get("tolerations") or (), tuple[Toleration, ...]):
        spec["tolerations"] = [msgspec.to_builtins(toleration) for toleration in tolerations]


def _with_flavors(
    spec: PodSpec, flavors: Sequence[ResourceFlavorSpec]
) -> tuple[dict[str, str], tuple[Toleration, ...]]:
    """Node selector and tolerations, none twice. A pod whose selector contradicts a flavor is not admitted with it."""
    labels = {key: value for flavor in flavors for key, value in flavor.node_labels.items()}
    added = (toleration for flavor in flavors for toleration in flavor.tolerations)
    return {**labels, **spec.node_selector}, tuple(dict.fromkeys((*spec.tolerations, *added)))


def _with_suspend(raw: Unstructured, suspended: bool) -> Unstructured:
    changed = copy.deepcopy(raw)
    *parents, field = SUSPEND_FIELDS[raw["kind"]]
    part = changed
    for parent in parents:
        part = part.setdefault(parent, {})
    part[field] = suspended
    return changed


def _is_suspended(raw: Unstructured) -> bool:
    part = raw
    for field in SUSPEND_FIELDS[raw["kind"]]:
        part = part.get(field) or {}
    return bool(part)


def _annotations(raw: Unstructured) -> Unstructured:
    annotations: Unstructured = raw["metadata"].get("annotations") or {}
    return annotations


def _set_parallelism(raw: Unstructured, count: int) -> None:
    """Only of a Job with partial admission: otherwise its size is its own."""
    annotations = _annotations(raw)
    if raw["kind"] != "Job" or MIN_PARALLELISM_ANNOTATION not in annotations:
        return
    raw["spec"]["parallelism"] = count
    if annotations.get(COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION) == "true":
        raw["spec"]["completions"] = count
