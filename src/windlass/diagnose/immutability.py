"""Which changes of an existing object the API server refuses, and the object to create anew instead.

`patches` asks it about every proposal, since a dump has no server that could try. The rules are Kubernetes' own
validation of updates: of a Pod nearly nothing can change, of a Job's template nothing once it has run.
"""

from __future__ import annotations

from typing import Any

from windlass.diagnose.unstructured import nested_bool, nested_map, nested_maps, nested_string

MUTABLE_POD_FIELDS = ("activeDeadlineSeconds", "terminationGracePeriodSeconds")
SUSPENDED_TEMPLATE_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of the template that may change of a suspended Job that has never started, beside its node affinity."""
MUTABLE_SET_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
)
IMMUTABLE_TEMPLATES = ("Job", "JobSet")
SERVER_METADATA = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
SERVER_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")
TOKEN_PREFIX = "kube-api-access-"


def refused_fields(kind: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Fields whose change the API server refuses; empty if it takes the new object."""
    before, after = nested_map(old, "spec"), nested_map(new, "spec")
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if kind == "Pod":
        gated = bool(nested_maps(before, "schedulingGates"))
        return [f"spec.{name}" for name in changed if not _may_change(name, before, after, gated)]
    if kind == "StatefulSet":
        return [f"spec.{name}" for name in changed if name not in MUTABLE_SET_FIELDS]
    if kind in IMMUTABLE_TEMPLATES:
        held = nested_bool(old, "spec", "suspend") and not nested_string(old, "status", "startTime")
        template = {"Job": "template", "JobSet": "replicatedJobs"}[kind]
        if template in changed and not (held and _only_placement(before.get(template), after.get(template))):
            return [f"spec.{template}"]
    return []


def _may_change(name: str, before: dict[str, Any], after: dict[str, Any], gated: bool) -> bool:
    if name in MUTABLE_POD_FIELDS or (gated and _is_narrowed(name, before, after)):
        return True
    if name == "tolerations":  # only added ones
        kept = nested_maps(after, name)
        return all(toleration in kept for toleration in nested_maps(before, name))
    if name in ("containers", "initContainers"):
        return _without_images(before, name) == _without_images(after, name)
    return False


def _without_images(spec: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in container.items() if key != "image"} for container in nested_maps(spec, field)
    ]


def _is_narrowed(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the field changed as it may while the pod has scheduling gates: it may only become more selective."""
    if name == "nodeSelector":
        return nested_map(before, name).items() <= nested_map(after, name).items()
    if name == "affinity":
        return not nested_map(before, name, "nodeAffinity") and _same_pod_affinity(before, after)
    return name == "schedulingGates" and len(nested_maps(after, name)) < len(nested_maps(before, name))


def _same_pod_affinity(before: dict[str, Any], after: dict[str, Any]) -> bool:
    rules = ("podAffinity", "podAntiAffinity")
    return all(nested_map(before, "affinity", rule) == nested_map(after, "affinity", rule) for rule in rules)


def _only_placement(before: Any, after: Any) -> bool:
    """Whether two templates differ only where a suspended Job may be changed."""
    if isinstance(before, dict) and isinstance(after, dict):
        if "containers" in before:
            changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
            changes_rules = "affinity" in changed and not _same_pod_affinity(before, after)
            return not changes_rules and all(key in (*SUSPENDED_TEMPLATE_FIELDS, "affinity") for key in changed)
        if "containers" in nested_map(before, "spec"):  # a template: its labels and annotations may change, too
            return _only_placement(before["spec"], after.get("spec"))
        return before.keys() == after.keys() and all(_only_placement(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(_only_placement(one, other) for one, other in zip(before, after, strict=True))
    return bool(before == after)


def recreated(data: dict[str, Any]) -> dict[str, Any]:
    """The object as it would be created anew: without what the server, controllers and the kubelet have added."""
    metadata = {key: value for key, value in nested_map(data, "metadata").items() if key not in SERVER_METADATA}
    result = {key: value for key, value in data.items() if key != "status"} | {"metadata": metadata}
    spec = dict(nested_map(data, "spec"))
    if nested_string(data, "kind") == "Pod":
        spec.pop("nodeName", None)
        result["spec"] = _without_token(spec)
    elif nested_string(data, "kind") == "Job":
        spec.pop("selector", None)
        template = dict(nested_map(spec, "template"))
        inner = dict(nested_map(template, "metadata"))
        labels = {key: value for key, value in nested_map(inner, "labels").items() if key not in SERVER_LABELS}
        template["metadata"] = {**inner, "labels": labels}
        result["spec"] = {**spec, "template": template}
    return result


def _without_token(spec: dict[str, Any]) -> dict[str, Any]:
    """The service account's token, which every pod is given anew."""
    result = dict(spec)
    volumes = [
        volume for volume in nested_maps(spec, "volumes") if not nested_string(volume, "name").startswith(TOKEN_PREFIX)
    ]
    if "volumes" in spec:
        result["volumes"] = volumes
    for field in ("containers", "initContainers"):
        if field in spec:
            result[field] = [_without_token_mount(container) for container in nested_maps(spec, field)]
    return result


def _without_token_mount(container: dict[str, Any]) -> dict[str, Any]:
    if "volumeMounts" not in container:
        return container
    mounts = [
        mount
        for mount in nested_maps(container, "volumeMounts")
        if not nested_string(mount, "name").startswith(TOKEN_PREFIX)
    ]
    return {**container, "volumeMounts": mounts}
